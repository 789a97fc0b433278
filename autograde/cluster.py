"""Grades notebooks on the workers of a Dask cluster: `results.graded`, run there."""

import asyncio
import json
import logging
import secrets
import threading
from concurrent.futures import CancelledError
from functools import lru_cache

import nbformat
from distributed import Client, Security
from distributed.comm import CommClosedError, connect

from autograde import results, sandbox
from autograde.course import Problem
from autograde.sandbox import Unconfined

PATIENCE = 8  # seconds until a scheduler is given up that does not answer
LOOK = 2  # seconds between two looks at which workers there are
SILENCE = 30  # seconds without a worker until that is said
WAITING = 32  # notebooks that are given to it at a time, at least: more workers may come


class Cluster:
    """The workers of a cluster that may grade; a context manager.

    A worker may when it has the files and versions of this machine, and can confine students' code if that is wanted.
    `say` is told of every other one, by name, with the reason; it gets nothing to do. Workers may come and go: one that
    comes is looked at, and what was on one that went is run again. Raises `Problem` where no scheduler answers or no
    worker is fit.
    """

    def __init__(self, address, box, say):
        self.address, self._box, self._say = address, box, say
        # What only those workers have that this run found fit, as many as they have threads.
        self._resource = f"grading-{secrets.token_hex(4)}"
        self._threads = {}  # of each worker that was looked at; 0 for one that is not fit
        self._ending = threading.Event()

    def __enter__(self):
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what is wrong we say in a sentence
        try:
            asyncio.run(_reach(self.address))  # a client that could not connect would complain once more at its end
            self._client = Client(self.address, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise Problem(
                f"no Dask scheduler answers at {self.address!r} ({_one_line(error)}); start one with `dask scheduler` "
                "and give its address as it prints it, such as tcp://192.168.1.5:8786"
            ) from None
        self._admit()
        if not any(self._threads.values()):
            self._client.close()
            why = "none of its workers is fit, see above" if self._threads else "it has no worker"
            raise Problem(f"the cluster at {self.address} cannot grade: {why}; start one: `dask worker {self.address}`")
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._watch.join()
        self._client.close()

    def stop(self, running):
        """Wait for no result any longer, however many are still running: the run ends."""
        self._ending.set()

    @property
    def jobs(self):
        """How many notebooks are given to it at a time: twice as many as its fit workers can run."""
        return max(WAITING, 2 * sum(self._threads.values()))

    def graded(self, nb, source, box, seed):
        """Return what `results.graded` returns, from a worker; called from many threads."""
        task = self._client.submit(
            graded, json.dumps(nb), json.dumps(source), seed, box.confined, box.limits,
            resources={self._resource: 1}, pure=False,
        )  # fmt: skip
        try:
            found = self._result_of(task)
        finally:
            task.release()  # at once: what is in a worker's memory when it goes would be run again
        if fault := found.get("fault"):
            raise Unconfined(fault) if found["unconfined"] else RuntimeError(fault)
        return found

    def _result_of(self, task):
        while not self._ending.is_set():
            try:
                return task.result(timeout=1)
            except TimeoutError:
                continue
            except (CancelledError, CommClosedError):
                raise Problem(f"the scheduler at {self.address} is gone; what was graded is kept: run again") from None
        raise CancelledError

    def _look(self):
        """See which workers there are until the run ends."""
        without = 0
        while not self._ending.wait(LOOK):
            try:
                self._admit()
            except (OSError, CommClosedError, CancelledError):
                continue  # the scheduler is gone, which whoever waits for a result will find out
            without = 0 if any(self._threads.values()) else without + LOOK
            if without == SILENCE:
                self._say(f"no worker is left at {self.address}; waiting for one: dask worker {self.address}")

    def _admit(self):
        """Look at the workers that have come, and forget those that have gone."""
        there = self._client.nthreads()
        known = {address: threads for address, threads in self._threads.items() if address in there}
        if new := [address for address in there if address not in known]:
            wanted = (self._resource, results.environment(), self._box.confined)
            found = self._client.run(admit, *wanted, workers=new, on_error="return")
            names = {address: about["name"] for address, about in self._client.scheduler_info()["workers"].items()}
            for address, reason in found.items():
                known[address] = 0 if reason else there[address]
                if reason:
                    unusable = f"the course cannot be used there, {reason}; set it up there as here (`make setup`)"
                    why = unusable if isinstance(reason, Exception) else reason
                    self._say(f"worker {names.get(address, '')} at {address} is not used: {why}")
            self._client.run_on_scheduler(_looking_again([address for address in found if known[address]]))
        self._threads = known  # at once, for others read it meanwhile


async def _reach(address):
    comm = await connect(address, timeout=PATIENCE, **Security().get_connection_args("client"))
    await comm.close()


def _looking_again(addresses):
    """Return what lets a scheduler give these workers what nobody could take: of a later resource it takes no notice.

    A function inside a function is sent whole, so that the scheduler's machine needs nothing of the course.
    """

    def look(dask_scheduler):
        for address in addresses:
            if there := dask_scheduler.workers.get(address):
                found = dask_scheduler.bulk_schedule_unrunnable_after_adding_worker(there)
                dask_scheduler.transitions(found, "a worker was admitted")

    return look


def _one_line(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


# What runs on a worker


async def admit(resource, wanted, confined, dask_worker):
    """Give the worker that this runs on the resource if it is fit for grading; else return why it is not."""
    reason = await asyncio.to_thread(unfit, wanted, confined)
    if not reason:
        await dask_worker.set_resources(**{resource: dask_worker.state.nthreads})
    return reason


def unfit(wanted, confined):
    """Return why this process cannot grade as one with the `results.environment` that is wanted, or ""."""
    here = results.environment()
    other = [f"{name} {here[name]} in place of {wanted[name]}" for name in wanted if here[name] != wanted[name]]
    if other:
        return f"it has {', '.join(other)}; update it and start it again"
    return sandbox.missing() if confined else ""


def graded(nb, source, seed, confined, limits):
    """Grade a sanitised notebook, given as JSON like the course's own, in this process's sandbox.

    Returns what `results.graded` does, or {"fault", "unconfined"}: plain data, for not every error can be sent.
    """
    books = (nbformat.from_dict(json.loads(text)) for text in (nb, source))
    try:
        return results.graded(*books, _sandbox(confined, limits), seed)
    except Unconfined as error:
        return {"fault": str(error), "unconfined": True}
    except Exception as error:
        return {"fault": _one_line(error), "unconfined": False}


@lru_cache(maxsize=1)
def _sandbox(confined, limits):
    return sandbox.Sandbox(confined, limits)
