"""Collects submissions as nbgrader does, but copies no file that a link in the exchange only points to."""

import shutil
from functools import partial
from pathlib import Path

from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import temp_attrs


class Collect(ExchangeCollect):
    """nbgrader's own step reads what a link points to with the instructor's rights: another's work, or the source."""

    def do_copy(self, src, dest, log=None):
        """Copy a submission from the exchange; its links stay links, which grading refuses to read."""
        if Path(src).is_symlink():
            self.log.error("not collected, since it is a link to another folder: %s", src)
            return
        with temp_attrs(shutil, copytree=partial(shutil.copytree, symlinks=True)):
            super().do_copy(src, dest, log)
