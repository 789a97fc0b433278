"""The exercises of the course: one module a chapter, called by the chapter's slug, with a list EXERCISES."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules


def chapters():
    """Return the slugs of the chapters that have exercises, in order."""
    return sorted(module.name for module in iter_modules(__path__))


@cache
def load(slug):
    """Return a chapter's exercises, {id: Exercise or Manual}, in the order of the chapter; none for an unknown slug."""
    if slug not in chapters():
        return {}
    return {exercise.id: exercise for exercise in import_module(f"{__name__}.{slug}").EXERCISES}


def checked():
    """Return the ids of all exercises that `check` knows, in the order of the course."""
    return [name for slug in chapters() for name, exercise in load(slug).items() if hasattr(exercise, "reference")]


def find(exercise_id):
    """Return the exercise with an id. Raises KeyError when there is none, or when a person grades it."""
    for slug in chapters():
        if exercise_id in load(slug) and exercise_id in checked():
            return load(slug)[exercise_id]
    raise KeyError(exercise_id)
