"""The files of deploy/: they parse, agree with each other and with the commands and metrics they use."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from typer.main import get_command

from dsrd.cli.main import app
from dsrd.live.engine import Engine
from dsrd.live.server.metrics import Requests
from dsrd.live.server.service import Service

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, rest) of a Dockerfile, with continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\s*\n\s*", " ", "\n".join(lines)).splitlines()
    parts = [line.split(None, 1) for line in joined]
    return [(name.upper(), rest) for name, rest in parts]


DOCKERFILE = instructions((DEPLOY / "Dockerfile").read_text())


def options_of(command: str) -> set[str]:
    group: Any = get_command(app)
    return {name for each in group.commands[command].params for name in each.opts}


def check_command(words: list[str]) -> None:
    """A dsrd command line has only options that exist."""
    used = {word for word in words[1:] if word.startswith("--")}
    assert used <= options_of(words[0]), words


# --- The image -------------------------------------------------------------------------------------------------


def test_dockerfile_has_only_known_instructions():
    known = {"FROM", "RUN", "COPY", "ARG", "ENV", "USER", "WORKDIR", "VOLUME", "EXPOSE", "HEALTHCHECK"}
    known |= {"STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in DOCKERFILE} <= known
    assert DOCKERFILE[0][0] == "FROM"


def test_images_have_a_version():
    images = [rest.split()[0] for name, rest in DOCKERFILE if name == "FROM"]
    images += [service["image"] for service in COMPOSE["services"].values() if "build" not in service]
    for image in images:
        assert re.search(r":v?\d", image), f"{image}: name a version, so that a build can be repeated"


def test_the_image_does_not_run_as_root():
    last_stage = DOCKERFILE[max(row for row, (name, _) in enumerate(DOCKERFILE) if name == "FROM") :]
    users = [rest for name, rest in last_stage if name == "USER"]
    assert users
    assert all(re.fullmatch(r"[1-9]\d+:[1-9]\d+", user) for user in users)
    after = [name for name, _ in last_stage][[name for name, _ in last_stage].index("USER") :]
    assert "RUN" not in after


def test_the_image_is_healthy_when_the_server_answers():
    check = dict(DOCKERFILE)["HEALTHCHECK"]
    command = json.loads(check[check.index("[") :])
    assert command[0] == "python"
    compile(command[2], "healthcheck", "exec")
    assert "/healthz" in command[2]


def test_commands_of_the_image_exist():
    table = dict(DOCKERFILE)
    assert json.loads(table["ENTRYPOINT"]) == ["dsrd"]
    check_command(json.loads(table["CMD"]))


def test_copied_files_exist_and_extras_are_declared():
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for name, rest in DOCKERFILE:
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source.removeprefix('./')}" in ignored, source
    extras = re.findall(r"\.whl\)\[([\w,]+)\]", (DEPLOY / "Dockerfile").read_text())
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras
    assert set(extras[0].split(",")) <= declared.keys()


def test_a_wheel_is_built_from_the_copied_files_and_has_the_page(tmp_path: Path):
    copied = [rest.split()[:-1] for name, rest in DOCKERFILE if name == "COPY" and "--from" not in rest]
    for source in [each for group in copied for each in group]:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, tmp_path / source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "wheel")]
    done = subprocess.run([*build, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wheel = next((tmp_path / "wheel").glob("*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    for file in (ROOT / "src" / "dsrd" / "live" / "page").iterdir():
        assert f"dsrd/live/page/{file.name}" in names


# --- Compose ---------------------------------------------------------------------------------------------------


def test_services_use_declared_secrets_volumes_and_services():
    for name, service in COMPOSE["services"].items():
        assert {*service.get("secrets", [])} <= COMPOSE["secrets"].keys(), name
        assert {*service.get("depends_on", [])} <= COMPOSE["services"].keys(), name
        assert service["profiles"], name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or source.startswith("./"), volume
            if source.startswith("./") and source != "./model":
                assert (DEPLOY / source).exists(), volume
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "other machines come through a proxy with TLS"


def test_commands_of_services_exist():
    ours = [service for service in COMPOSE["services"].values() if "build" in service]
    assert len(ours) == 3
    for service in ours:
        check_command(service["command"])
        assert service["read_only"]
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()


def test_one_process_writes_to_the_log():
    for profile in ("http", "redis"):
        running = [
            each for each in COMPOSE["services"].values() if profile in each["profiles"] and "build" in each
        ]
        writers = [each for each in running if "--read-only" not in each["command"]]
        assert len(writers) == 1, profile


def test_docker_takes_the_compose_file():
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    command = [docker, "compose", "--profile", "http", "--profile", "redis", "-f", str(DEPLOY / "compose.yaml")]
    done = subprocess.run([*command, "config", "--quiet"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- Prometheus and the dashboard --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metrics(run: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names that a real server tells."""
    data = tmp_path_factory.mktemp("metrics") / "data"
    service = Service(lambda progress: Engine(data, run, progress=progress))
    service.start(failed=lambda: None)
    service._thread.join()
    requests = Requests(service)
    requests.count({"route": None, "path": "/"}, 200, 0.1)
    text = requests.text().decode()
    service.close()
    assert generate_latest(CollectorRegistry()) == b""
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")} | {
        "dsrd_lag_seconds"  # of streams with dates only
    }


def expressions() -> Iterator[tuple[str, str]]:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_rules_and_panels_use_metrics_that_exist(metrics: set[str]):
    for name, expression in expressions():
        used = {*re.findall(r"\bdsrd_\w+", expression)}
        assert used or "up{" in expression, name
        assert used <= metrics, f"{name}: {used - metrics}"
        assert expression.count("(") == expression.count(")"), name


def test_every_alert_says_what_to_do():
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")


def test_prometheus_finds_the_servers():
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert config["rule_files"] == ["alerts.yml"]
    (job,) = config["scrape_configs"]
    names = {name for each in job["dns_sd_configs"] for name in each["names"]}
    assert names <= COMPOSE["services"].keys()


def test_promtool_takes_the_rules(tmp_path: Path):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed; it comes with the package prometheus")
    done = subprocess.run([promtool, "check", "rules", str(DEPLOY / "alerts.yml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (DEPLOY / "prometheus.yml").read_text().replace("/run/secrets/token", str(tmp_path / "token"))
    (tmp_path / "token").write_text("secret")
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copy(DEPLOY / "alerts.yml", tmp_path)
    done = subprocess.run([promtool, "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True)
    assert done.returncode == 0, done.stdout


def test_the_dashboard_is_provisioned():
    mounted = [volume.split(":")[:2] for volume in COMPOSE["services"]["grafana"]["volumes"]]
    targets = {Path(source).name: target for source, target in mounted}
    providers = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yaml").read_text())["providers"]
    assert targets["dashboard.json"].startswith(providers[0]["options"]["path"])
    sources = yaml.safe_load((DEPLOY / "grafana" / "datasource.yaml").read_text())["datasources"]
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {each["uid"] for each in sources}
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in dashboard["panels"]]
    assert len({*places}) == len(places), "panels do not overlap"


# --- systemd ---------------------------------------------------------------------------------------------------


def test_the_unit_starts_a_command_that_exists():
    text = (DEPLOY / "dsrd.service").read_text()
    words = shlex.split(re.search(r"^ExecStart=(.*)$", text, re.M)[1])
    assert Path(words[0]).name == "dsrd"
    check_command(words[1:])


def test_systemd_takes_the_unit(tmp_path: Path):
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "dsrd.service").read_text()
    unit = tmp_path / "dsrd.service"
    unit.write_text(text.replace("/opt/dsrd/bin/dsrd", "/bin/true"))
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    faults = [line for line in done.stderr.splitlines() if "dsrd.service" in line]
    assert not faults
