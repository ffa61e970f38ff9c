"""stop_on: the server judges the run, and the training ends at the first finding of a level.

A thread asks plumbd's page for the run's open incidents. Ranks end together: rank 0 decides for a later step, through torch's store.
"""

import os
import sys
import threading

from ._ranks import of_process_group

LEVELS = ("warning", "error")
_EVERY = 2.0  # seconds
_PATIENCE = 5.0  # seconds, for one answer
_LATER = 8  # steps: ranks that train together are never so far apart
_PORT = 7434  # of plumbd's page, unless PLUMBLINE_PAGE names another address
NEEDS_A_SERVER = ("needs a server (server=, or PLUMBLINE_SERVER), which judges the run while it trains; without one the training goes on, "
                  "and `plumb audit` judges the record afterwards")  # fmt: skip


def checked(level):
    """The level, or ValueError."""
    if level not in (None, *LEVELS):
        raise ValueError(f"stop_on is {level!r}; expected 'error', 'warning' or None")
    return level


def page_of(server):
    """The address of the page of a server that agents reach at host:port."""
    page = os.environ.get("PLUMBLINE_PAGE")
    if page:
        return (page if "://" in page else f"http://{page}").rstrip("/")
    if not server or server.startswith("unix:"):
        return None
    secure = "https" if os.environ.get("PLUMBLINE_TLS_CA") else "http"
    return f"{secure}://{server.rpartition(':')[0] or server}:{_PORT}"


class Asking:
    """The requests of one run."""

    def __init__(self, page, run, level):
        import ssl  # only here: they cost what importing the package costs
        import urllib.parse
        import urllib.request

        query = urllib.parse.urlencode({"run": run, "state": "open"})
        self._urlopen, self._request = urllib.request.urlopen, urllib.request.Request(f"{page}/api/v1/incidents?{query}")
        token = os.environ.get("PLUMBLINE_TOKEN_FILE")
        if token:
            with open(token, encoding="utf-8") as file:
                self._request.add_header("Authorization", f"Bearer {file.read().strip()}")
        authority = os.environ.get("PLUMBLINE_TLS_CA")
        self._context = ssl.create_default_context(cafile=authority) if authority else None
        self._levels = LEVELS[LEVELS.index(level) :]

    def incidents(self):
        """{(fingerprint, when it was opened): row}."""
        import json

        with self._urlopen(self._request, timeout=_PATIENCE, context=self._context) as answer:
            rows = json.load(answer)["incidents"]
        return {(row["fingerprint"], row.get("opened")): row for row in rows if row.get("level") in self._levels}


class Stopping:
    """Of one run. `reason` is None until a finding of the level is there."""

    def __init__(self, asking, key):
        """key: of the ranks' agreement, the same on each."""
        self._asking, self._key, self.reason = asking, f"plumbline/stop/{key}", None
        self._known, self._failed, self._over = None, False, threading.Event()
        self._agreed, self._told = None, False
        self._thread = threading.Thread(target=self._ask, name="plumbline-stop", daemon=True)

    def start(self):
        self._look()  # what is open already is of an earlier attempt
        self._thread.start()

    def _ask(self):
        while self.reason is None and not self._over.wait(_EVERY):
            self._look()

    def _look(self):
        try:
            rows = self._asking.incidents()
        except Exception as error:
            if not self._failed:
                self._failed = True
                print(f"plumbline: stop_on: the server's page does not answer ({error}); expected it at {self._asking._request.host} (PLUMBLINE_PAGE "
                      "names another address). It is asked again; meanwhile the training goes on", file=sys.stderr)  # fmt: skip
            return
        if self._known is None:
            self._known = set(rows)
        for key, row in rows.items():
            if key not in self._known and self.reason is None:
                self.reason = f"{row.get('level')} {row.get('rule')}: {row.get('title')} (step {row.get('step_first', row.get('step', '?'))})"

    def due(self, step):
        """Shall the training end behind this step? On each rank it is the same step."""
        try:
            group = of_process_group()
            due = self.reason is not None if group is None or group[1] == 1 else self._agree(step, group[0])
        except Exception as error:
            print(f"plumbline: stop_on: the ranks cannot agree on a step: {error!r}; the training goes on", file=sys.stderr)
            self._over.set()
            self.due = lambda step: False
            return False
        if due and not self._told:
            self._told = True
            print(f"plumbline: the training ends behind step {step}: {self.reason or 'rank 0 has a finding'}", file=sys.stderr)
        return due

    def _agree(self, step, rank):
        if self._agreed is None and step % _LATER == 0:
            store = sys.modules["torch"].distributed.distributed_c10d._get_default_store()
            if rank == 0 and self.reason is not None:
                self._agreed = store.add(self._key, step + _LATER)
            elif rank != 0:
                self._agreed = store.add(self._key, 0) or None  # a look that never waits
        return self._agreed is not None and step >= self._agreed

    def end(self):
        self._over.set()


def stopping(level, server, run, attempt=None):
    """A Stopping that asks, or None: no level was given, or there is no server, which is printed."""
    if level is None:
        return None
    page = page_of(server or os.environ.get("PLUMBLINE_SERVER"))
    if page is None:
        print(f'plumbline: stop_on="{level}" {NEEDS_A_SERVER}', file=sys.stderr)
        return None
    one = Stopping(Asking(page, run or os.environ.get("PLUMBLINE_RUN") or "", level), f"{run}/{attempt or 0}")
    one.start()
    return one
