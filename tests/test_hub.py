"""The configuration that the guide gives for a JupyterHub, as far as no hub is needed: it loads, its names agree."""

import re

import pytest
from traitlets.config import PyFileConfigLoader

from autograde.course import CONFIG


@pytest.fixture
def loaded(root, tmp_path):
    """{what the guide calls a file: its configuration}."""
    guide = (root / "guides" / "instructor.md").read_text("utf-8")
    section = guide.partition("## On a JupyterHub")[2].partition("\n## ")[0]
    found = {}
    for name, text in re.findall(r"`([\w/.~]+_config\.py)`[^`]*```python\n(.*?)```", section, re.DOTALL):
        path = tmp_path / name.rpartition("/")[2]
        path.write_text(text, "utf-8")
        found[path.name] = PyFileConfigLoader(path.name, path=str(tmp_path)).load_config()
    return found


def test_service_group_and_role_bear_the_course_s_name_and_point_at_its_server(loaded):
    assert set(loaded) == {"jupyterhub_config.py", "nbgrader_config.py", "jupyter_server_config.py"}
    name = loaded["nbgrader_config.py"].CourseDirectory.course_id
    assert f'course_id = "{name}"' in CONFIG
    hub = loaded["jupyterhub_config.py"]
    (service,) = hub.JupyterHub.services
    assert service["name"] == name
    assert list(hub.JupyterHub.load_groups) == [f"formgrade-{name}"]
    role, _ = hub.JupyterHub.load_roles
    assert role["groups"] == [f"formgrade-{name}"]
    assert all(scope.endswith(f"!service={name}") for scope in role["scopes"] if ":services!" in scope)
    assert set(hub.JupyterHub.load_groups[f"formgrade-{name}"]["users"]) < hub.Authenticator.allowed_users
    headers = loaded["jupyter_server_config.py"].ServerApp.tornado_settings["headers"]
    assert headers == {"Content-Security-Policy": "frame-ancestors 'self'"}
