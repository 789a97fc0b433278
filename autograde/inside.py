"""What `autograde` is inside the sandbox: `check` says that the verdict is found elsewhere."""


def check(exercise_id, answer):
    """Stand in for the notebook's `check`, which a student's own cells may call; the grader compares from outside."""
    return f"{exercise_id} is graded outside this process"
