"""Logins whose verdict is what a test is about."""

import re
import threading

import pytest

from . import wire


def nameless(text):
    """The text of a refused login, without who was refused."""
    return re.sub(r' for (user|host) ".*', "", text)


def refusal(howdah, **who):
    """SQLSTATE and text of a login that is refused, the text without the names in it."""
    with pytest.raises(wire.Refused) as refused:
        howdah.connect(**who)
    return refused.value.code, nameless(refused.value.text)


def at_once(howdah, passwords, user="ann", **who):
    """A client for each password, all at the same time: what each of them gets, "in" or the text
    of its error."""
    verdicts = [None] * len(passwords)

    def log_in(number, password):
        try:
            with howdah.connect(user=user, password=password, seconds=60, **who) as client:
                assert client.value("select 1") == "1"
                verdicts[number] = "in"
        except wire.Refused as refused:
            verdicts[number] = nameless(refused.text)

    threads = [threading.Thread(target=log_in, args=login) for login in enumerate(passwords)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return verdicts
