"""Makes gradebooks quick: a process of two seconds says which form they have, here once and not for each of them."""

import functools

import nbgrader.api

nbgrader.api.get_alembic_version = functools.cache(nbgrader.api.get_alembic_version)
