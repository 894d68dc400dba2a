"""The chart: linted, filled in with ten sets of values, and its manifests compared with Kubernetes' own schemas.
The configuration in them is checked by Howdah itself, with the variables that the chart sets.

Helm comes from Go, the schemas from kubernetes-validate (PyPI). HELM names another helm.
"""

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile

from . import ROOT, built, tell

CHART = os.path.join(ROOT, "packaging", "helm", "howdah")
TOOLS = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "chart")
HELM = "helm.sh/helm/v3/cmd/helm@v3.18.6"
VALIDATE = ("kubernetes-validate", "PyYAML")
KUBERNETES = "1.30"

# Sets of values as YAML.
VALUES = {
    "defaults": "",
    "one replica, ini": """
replicas: 1
config:
  toml: ""
  ini: |
    [databases]
    * = host=postgres
    [pgbouncer]
    auth_type = scram-sha-256
""",
    "users": r"""
users: {passwords: {app: 'word', 'od"d': 'with "quotes" and \', admin: SCRAM-SHA-256$4096:c2FsdA==$YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=:YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=}}
""",
    "a Secret that is there": "enabled: true\nusers: {existingSecret: pg-users}\nmetrics: {address: '::'}",
    "monitoring": "metrics: {serviceMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}, endpoint: {authorization: "\
        "{credentials: {name: token, key: token}}}}}",
    "a load balancer": """
service: {type: LoadBalancer, port: 5432, annotations: {example.com/kind: nlb}, labels: {tier: data}}
drain: {time: 120, delay: 15}
""",
    "resources and places": """
replicas: 3
resources: {requests: {cpu: "2", memory: 256Mi}, limits: {cpu: "2", memory: 512Mi}}
nodeSelector: {disk: ssd}
tolerations: [{key: db, operator: Exists, effect: NoSchedule}]
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 1
        podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}
topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {a: b}}}
priorityClassName: high
podDisruptionBudget: {enabled: true, maxUnavailable: 34%}
""",
    "volumes and variables": """
env: [{name: HOWDAH_WORKERS, value: "2"}, {name: WORD, valueFrom: {secretKeyRef: {name: s, key: k}}}]
envFrom: [{secretRef: {name: more}}]
extraVolumes: [{name: tls, secret: {secretName: tls}}]
extraVolumeMounts: [{name: tls, mountPath: /etc/tls, readOnly: true}]
serviceAccountName: howdah
automountServiceAccountToken: true
imagePullSecrets: [{name: pull}]
image: {repository: registry.example.com/howdah, tag: "0.1.0", pullPolicy: Always}
""",
    "names and labels": """
fullnameOverride: a-name-that-is-as-long-as-names-of-kubernetes-may-be-sixty-three
labels: {team: data}
annotations: {owner: me}
podLabels: {mesh: "off"}
podAnnotations: {note: "yes"}
""",
    "without a budget": "podDisruptionBudget: {enabled: false}\nsecurityContext: {runAsUser: 1000}\n",
}

# Values that the chart refuses, and what is said.
WRONG = {
    "replica: 3": "replica",
    "config: {toml: '', ini: ''}": "one of toml and ini",
    "config: {ini: '[databases]'}": "one of toml and ini",
    "users: {existingSecret: a, passwords: {b: c}}": "leave passwords out",
    "service: {type: External}": "service",
    "drain: {time: soon}": "drain",
}


def tools():
    """Helm, and the Python that has the schemas; both are fetched once."""
    os.makedirs(TOOLS, exist_ok=True)
    helm = os.environ.get("HELM") or os.path.join(TOOLS, "helm")
    if not os.path.exists(helm):
        print("== building helm, for some minutes", flush=True)
        subprocess.run(["go", "install", HELM], check=True, env={**os.environ, "GOBIN": TOOLS})
    python = os.path.join(TOOLS, "python", "bin", "python")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", os.path.join(TOOLS, "python")], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *VALIDATE], check=True)
    return helm, python


# Runs in the other Python: prints the manifests as JSON once all are valid.
COMPARE = f"""
import json, sys, yaml, kubernetes_validate
manifests = [one for one in yaml.safe_load_all(sys.stdin) if one]
for one in manifests:
    if not one["apiVersion"].startswith("monitoring.coreos.com/"):
        kubernetes_validate.validate(one, "{KUBERNETES}", strict=True)
print(json.dumps(manifests))
"""


def fill_in(helm, values):
    """What `helm template` makes of values."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        return subprocess.run([helm, "template", "shop", CHART, "--kube-version", KUBERNETES, "--values", file.name], capture_output=True,
                              text=True, check=False)


def check_config(howdah, manifests, folder):
    """Runs the configuration of the manifests through Howdah's own check."""
    of_kind = {}
    for one in manifests:
        of_kind.setdefault(one["kind"], []).append(one)
    (container,) = of_kind["Deployment"][0]["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    config, *users = of_kind["Secret"]
    ((name, text),) = config["data"].items()
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(base64.b64decode(text))
    listed = os.path.join(folder, "userlist.txt")
    with open(listed, "wb") as file:
        file.write(base64.b64decode(users[0]["data"]["userlist.txt"]) if users else b"")
    if "HOWDAH_AUTH_FILE" in variables:
        variables["HOWDAH_AUTH_FILE"] = listed
    done = subprocess.run([howdah, "config", "check", path], capture_output=True, text=True, check=False,
                          env={"PATH": os.environ["PATH"], **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    shown = subprocess.run([howdah, "config", "show", path], capture_output=True, text=True, check=True,
                           env={"PATH": os.environ["PATH"], **variables}).stdout
    assert "listen_port = 6432  (HOWDAH_LISTEN_PORT)" in shown and "http_listen_port = 9127" in shown
    assert "warning: auth file" not in done.stdout, done.stdout


def main():
    argparse.ArgumentParser(prog="./prove chart", description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    helm, python = tools()
    howdah = os.environ.get("HOWDAH") or os.path.join(built(debug=True), "howdah")
    subprocess.run([helm, "lint", "--strict", CHART], check=True)
    count = 0
    for name, values in VALUES.items():
        made = fill_in(helm, values)
        assert made.returncode == 0, f"{name}: {made.stderr}"
        compared = subprocess.run([python, "-c", COMPARE], input=made.stdout, capture_output=True, text=True,
                                  check=False)
        assert compared.returncode == 0, f"{name}: {compared.stderr}"
        manifests = json.loads(compared.stdout)
        with tempfile.TemporaryDirectory() as folder:
            check_config(howdah, manifests, folder)
        print(f"{name}: {len(manifests)} manifests", flush=True)
        count += len(manifests)
    for values, said in WRONG.items():
        made = fill_in(helm, values)
        assert made.returncode != 0 and said in made.stderr, f"{values}: {made.stderr}"
    return tell("chart", True, sets_of_values=len(VALUES), manifests=count, refused=len(WRONG))


if __name__ == "__main__":
    sys.exit(main())
