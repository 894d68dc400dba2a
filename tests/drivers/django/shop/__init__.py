"""An application of Django's for the workload."""
