"""docker-compose.yml and Dockerfile: what they promise, without an engine."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"topic", "replica-topic"}
LOG = "kafka://broker:9092/belog"
REPLICA = "kafka://broker:9092/belog-replica"


def test_nothing_is_published_beyond_this_machine() -> None:
    for name, service in SERVICES.items():
        assert service.get("network_mode") != "host", name
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), name


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOT))
def test_what_runs_on_is_watched_and_started_again(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", sorted(ONE_SHOT))
def test_topics_are_made_once(name: str) -> None:
    assert SERVICES[name]["restart"] == "no"


def test_images_name_a_version() -> None:
    images = [service["image"] for service in SERVICES.values() if "build" not in service]
    assert [image for image in images if not re.search(r":\d", image)] == []


def test_broker_makes_no_topic_by_itself_and_redis_appends() -> None:
    assert SERVICES["broker"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert "--appendonly yes" in " ".join(SERVICES["redis"]["command"])


def test_data_is_on_named_volumes() -> None:
    for name in ("broker", "redis"):
        (volume,) = SERVICES[name]["volumes"]
        assert volume.partition(":")[0] in COMPOSE["volumes"]


def test_commands_are_those_of_two_instances() -> None:
    commands = {
        name: " ".join(service["command"])
        for name, service in SERVICES.items()
        if service["image"] == "belog"
    }
    assert commands == {
        "topic": f"topic create --log {LOG}",
        "worker": f"worker --log {LOG} --tables redis://redis:6379/0",
        "serve": f"serve --log {LOG} --tables redis://redis:6379/0 --host 0.0.0.0 --grpc-port 8001"
        " --allow-open",
        "replica-topic": f"topic create --log {REPLICA}",
        "sink": f"sink --from {LOG} --to {REPLICA}",
        "replica-worker": f"worker --log {REPLICA} --tables redis://redis:6379/1",
    }
    assert SERVICES["worker"]["deploy"]["replicas"] == 2


def test_nobody_starts_before_what_it_needs() -> None:
    done, well = "service_completed_successfully", "service_healthy"
    needs = {
        name: {on: how["condition"] for on, how in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    assert needs["topic"] == needs["replica-topic"] == {"broker": well}
    assert needs["worker"] == {"topic": done, "redis": well}
    assert needs["serve"] == {"worker": well}
    assert needs["sink"] == {"topic": done, "replica-topic": done}
    assert needs["replica-worker"] == {"replica-topic": done, "redis": well}


def test_image_runs_as_nobody_special() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER belog"]
    assert [line for line in lines if line.startswith("FROM ")] == [
        "FROM python:3.12-slim AS build",
        "FROM python:3.12-slim",
    ]
