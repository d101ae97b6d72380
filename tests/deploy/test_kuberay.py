"""The manifests build, say only what the API takes, and keep what the operations page promises."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.shared_embedder import shared_name
from monitor import __version__
from monitor.config import load
from monitor.jobs.actor_placement import Node, embedder_request, helper_nodes, places
from tests.deploy import prometheus_operator
from tests.deploy.kuberay import problems
from tests.deploy.manifests import (
    DEPLOY,
    KUBERAY,
    OVERLAYS,
    ROOT,
    build,
    containers,
    of_kind,
    ray_cluster,
    templates,
    walk,
)

#: Made by people, by the commands that stand beside their first use.
SECRETS = {"conclad-ray-token", "conclad-desk-token", "conclad-postgres", "conclad-s3"}

#: What stands for --group.
GROUP = "CONCLAD_GROUP"

CUSTOM = ("ray.io/", "monitoring.coreos.com/")

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


def pinned(package: str) -> str:
    pins = (ROOT / "constraints.txt").read_text()
    [version] = re.findall(rf"^{package}==(.+)$", pins, re.MULTILINE)
    return str(version)


@each_overlay
def test_the_api_takes_every_field(overlay: str, tmp_path: Path) -> None:
    plain = [m for m in build(overlay) if not m["apiVersion"].startswith(CUSTOM)]
    # The pods of a RayCluster become plain pods, and are checked as such.
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": template["spec"]}
        for name, template in templates(overlay)
    ]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*plain, *pods]))
    done = subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "--strict", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "WARN" not in said
    assert said.count("passed") == len(plain) + len(pods)


@each_overlay
def test_kuberay_takes_every_field(overlay: str) -> None:
    assert problems(ray_cluster(overlay)) == []


def test_a_misspelt_field_would_be_found() -> None:
    cluster: Any = copy.deepcopy(ray_cluster("gpu"))
    cluster["spec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    cluster["spec"]["workerGroupSpecs"][1]["minReplica"] = 1
    cluster["spec"]["autoscalerOptions"]["upscalingMode"] = "Slow"
    del cluster["spec"]["workerGroupSpecs"][0]["groupName"]
    assert len(problems(cluster)) == 4
    refused: Any = copy.deepcopy(ray_cluster("gpu"))
    refused["spec"]["headGroupSpec"]["template"]["spec"]["restartPolicy"] = "Always"
    refused["spec"]["workerGroupSpecs"][0]["rayStartParams"]["labels"] = "role=helpers"
    refused["spec"]["workerGroupSpecs"][1]["replicas"] = 20
    assert len(problems(refused)) == 3


@each_overlay
def test_the_prometheus_operator_takes_every_field_and_finds_them(overlay: str) -> None:
    found = [m for m in build(overlay) if m["apiVersion"] == "monitoring.coreos.com/v1"]
    assert {m["kind"] for m in found} == set(prometheus_operator.KINDS)
    for resource in found:
        assert prometheus_operator.problems(resource) == []
        # What kube-prometheus-stack selects by, and the page of installation speaks of.
        assert resource["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert "kube-prometheus-stack" in (ROOT / "docs" / "operations.md").read_text()
    broken: Any = copy.deepcopy(found[0])
    broken["spec"]["selektor"] = {}
    assert len(prometheus_operator.problems(broken)) == 1


@each_overlay
def test_helpers_have_a_group_that_does_not_scale_and_nobody_else_fits_there(overlay: str) -> None:
    groups = {g["groupName"]: g for g in ray_cluster(overlay)["spec"]["workerGroupSpecs"]}
    helpers = groups["helpers"]
    assert helpers["minReplicas"] == helpers["maxReplicas"] == 1
    nodes = {name: worker_of(group) for name, group in groups.items()}
    for _, _, config in monitors(overlay):
        assert helper_nodes(config, list(nodes.values())) == (nodes["helpers"],)
        asked = embedder_request(config, places(config, list(nodes.values())))
        assert asked.fits(nodes["helpers"]) == 0


@each_overlay
def test_the_head_is_asked_as_kuberay_asks_it_and_so_is_the_autoscaler(overlay: str) -> None:
    spec = ray_cluster(overlay)["spec"]
    [head] = spec["headGroupSpec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe"):
        assert head[probe]["httpGet"] == {"path": "/api/healthz", "port": 52365}
    # With v2 a sidecar that died stays dead; only the head's own end brings a new pod.
    assert spec["autoscalerOptions"]["version"] == "v2"
    assert head["livenessProbe"]["exec"]["command"] == ["conclad-node", "head-alive"]
    ports = {port["name"]: port["containerPort"] for port in head["ports"]}
    assert ports["as-metrics"] == 44217


@each_overlay
def test_asking_the_monitor_whether_it_lives_costs_one_request(overlay: str) -> None:
    for name, monitor, _ in monitors(overlay):
        probe = monitor["livenessProbe"]
        assert probe["httpGet"] == {"path": "/alive", "port": "metrics"}, name
        assert "exec" not in probe


@each_overlay
def test_the_head_takes_no_work_and_the_token_is_asked_for(overlay: str) -> None:
    spec = ray_cluster(overlay)["spec"]
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert spec["authOptions"] == {"mode": "token", "secretName": "conclad-ray-token"}
    assert spec["enableInTreeAutoscaling"] is True


@each_overlay
def test_versions_are_those_we_test_with(overlay: str) -> None:
    assert ray_cluster(overlay)["spec"]["rayVersion"] == pinned("ray")
    variant = "cpu" if overlay == "cpu" else "cuda"
    for name, container in containers(overlay):
        assert container["image"] == f"conclad:{__version__}-{variant}", name


@pytest.mark.parametrize("overlay", ["gpu", "s3-postgres", "groups"])
def test_embedders_get_gpus_from_a_group_that_grows(overlay: str) -> None:
    groups = {g["groupName"]: g for g in ray_cluster(overlay)["spec"]["workerGroupSpecs"]}
    gpu = groups["gpu"]
    assert gpu["minReplicas"] < gpu["maxReplicas"]
    [container] = gpu["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {t["key"] for t in gpu["template"]["spec"]["tolerations"]} == {"nvidia.com/gpu"}


@each_overlay
def test_every_container_is_watched_bounded_and_without_privileges(overlay: str) -> None:
    for name, container in containers(overlay):
        assert {"livenessProbe", "readinessProbe"} <= container.keys(), name
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name
        assert "memory" in container["resources"]["limits"], name
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False, name
        assert security["capabilities"] == {"drop": ["ALL"]}, name
    for name, template in templates(overlay):
        security = template["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security["seccompProfile"]["type"] == "RuntimeDefault", name
        # The head's autoscaler speaks to the API; nobody else does.
        assert name == "head" or template["spec"]["automountServiceAccountToken"] is False


@each_overlay
def test_secrets_are_named_and_never_written(overlay: str) -> None:
    assert of_kind(overlay, "Secret") == []
    named = {
        part["secretKeyRef"]["name"]
        for manifest in build(overlay)
        for part in walk(manifest)
        if isinstance(part, dict) and "secretKeyRef" in part
    }
    expected = SECRETS if overlay == "s3-postgres" else {"conclad-ray-token", "conclad-desk-token"}
    assert named == expected
    text = yaml.safe_dump_all(build(overlay))
    assert not re.search(r"://[^/\s:]+:[^@\s]+@", text), "a password in an address"
    made_in = "\n".join(path.read_text() for path in KUBERAY.rglob("*.yaml"))
    for secret in expected:
        assert f"create secret generic {secret}" in made_in, "the command that makes it is shown"


@each_overlay
def test_everything_that_is_mounted_or_read_exists(overlay: str) -> None:
    existing = {(m["kind"], m["metadata"]["name"]) for m in build(overlay)}
    for name, template in templates(overlay):
        spec = template["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", claim) in existing, name
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in existing, name
        used = {mount["name"] for c in spec["containers"] for mount in c["volumeMounts"]}
        assert used == set(volumes), name
        for container in spec["containers"]:
            for source in container.get("envFrom", ()):
                assert ("ConfigMap", source["configMapRef"]["name"]) in existing, name


@each_overlay
def test_services_and_scrapes_reach_a_port_of_a_pod(overlay: str) -> None:
    pods = [
        (t["metadata"]["labels"], {p["name"] for c in t["spec"]["containers"] for p in c["ports"]})
        for _, t in templates(overlay)
    ]
    for service in of_kind(overlay, "Service"):
        wanted = service["spec"]["selector"].items()
        [ports] = [ports for labels, ports in pods if wanted <= labels.items()]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    [scrape] = of_kind(overlay, "ServiceMonitor")
    wanted = scrape["spec"]["selector"]["matchLabels"].items()
    found = [s for s in of_kind(overlay, "Service") if wanted <= s["metadata"]["labels"].items()]
    assert len(found) == len(monitors(overlay)), "every group's page is scraped"
    for service in found:
        assert {e["port"] for e in scrape["spec"]["endpoints"]} <= {
            port["name"] for port in service["spec"]["ports"]
        }
    [pod_scrape] = of_kind(overlay, "PodMonitor")
    [rule] = pod_scrape["spec"]["selector"]["matchExpressions"]
    reached = [ports for labels, ports in pods if labels[rule["key"]] in rule["values"]]
    assert len(reached) == 1 + len(ray_cluster(overlay)["spec"]["workerGroupSpecs"])
    scraped = [e["port"] for e in pod_scrape["spec"]["podMetricsEndpoints"]]
    assert scraped == ["metrics", "as-metrics"]
    assert all("metrics" in ports for ports in reached)
    assert [("as-metrics" in ports) for ports in reached].count(True) == 1, "of the head"


@each_overlay
def test_nobody_speaks_to_a_pod_unless_a_policy_says_so(overlay: str) -> None:
    policies = {p["metadata"]["name"]: p["spec"] for p in of_kind(overlay, "NetworkPolicy")}
    assert policies["nobody-by-default"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    for name, spec in policies.items():
        for rule in spec.get("ingress", ()):
            assert rule.get("from"), f"{name} lets everybody in"
    [among] = policies["ray-among-itself"]["podSelector"]["matchExpressions"]
    components = {t["metadata"]["labels"][among["key"]] for _, t in templates(overlay)}
    assert components == set(among["values"])


@each_overlay
def test_a_drain_leaves_a_worker_and_blocks_on_nothing_single(overlay: str) -> None:
    [budget] = of_kind(overlay, "PodDisruptionBudget")
    # Kubernetes cannot count the pods of a custom resource: a share or maxUnavailable would fail.
    assert isinstance(budget["spec"]["minAvailable"], int)
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    covered = {name for name, t in templates(overlay) if wanted <= t["metadata"]["labels"].items()}
    groups = {g["groupName"] for g in ray_cluster(overlay)["spec"]["workerGroupSpecs"]}
    assert covered == groups


@each_overlay
def test_one_monitor_that_waits_for_its_batches(overlay: str) -> None:
    found = of_kind(overlay, "Deployment")
    for deployment, (_, _, config) in zip(found, monitors(overlay), strict=True):
        assert deployment["spec"]["replicas"] == 1
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert grace > config.run.grace_seconds


def file_of(overlay: str) -> Path:
    """Its own configuration, or that of all."""
    own = KUBERAY / "overlays" / overlay / "ray_config.yaml"
    return own if own.exists() else KUBERAY / "base" / "ray_config.yaml"


def monitors(overlay: str) -> list[tuple[str, Any, Any]]:
    """Each monitor's deployment and container, and the configuration that it reads."""
    return [
        (name, container, load(file_of(overlay), environ=said, group=said.get(GROUP)).config)
        for name, container in containers(overlay)
        if name.endswith("/monitor")
        for said in [variables(container)]
    ]


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v["value"] for v in container["env"] if "value" in v}


@each_overlay
def test_the_configuration_is_understood_and_agrees_with_the_ports(overlay: str) -> None:
    allowed = {
        port["port"]
        for policy in of_kind(overlay, "NetworkPolicy")
        for rule in policy["spec"].get("ingress", ())
        for port in rule.get("ports", ())
    }
    for name, _, config in monitors(overlay):
        ports = {
            port["name"]: port["containerPort"]
            for other, container in containers(overlay)
            if other.partition("/")[0] == name.partition("/")[0]
            for port in container["ports"]
        }
        assert ports == {"metrics": config.metrics.port, "desk": config.desk.port}
        assert set(ports.values()) <= allowed


def test_groups_share_the_cluster_and_nothing_else() -> None:
    found = {config.group: config for _, _, config in monitors("groups")}
    assert list(found) == ["forest", "harbour"]
    forest, harbour = found["forest"], found["harbour"]
    assert forest.feed.path != harbour.feed.path
    assert forest.desk_url == forest.desk.address != harbour.desk.address
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for deployment in of_kind("groups", "Deployment")
        for volume in deployment["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "state"
    ]
    assert claims == ["conclad-state-forest", "conclad-state-harbour"]
    # Monitor and desk of a pod are of one group.
    for deployment in of_kind("groups", "Deployment"):
        pod = deployment["spec"]["template"]
        groups = {variables(c)[GROUP] for c in pod["spec"]["containers"]}
        assert groups == {pod["metadata"]["labels"]["conclad/group"]}


def test_the_groups_share_embedders_that_fit_the_shipped_nodes() -> None:
    [gpu] = [
        group
        for group in ray_cluster("groups")["spec"]["workerGroupSpecs"]
        if group["groupName"] == "gpu"
    ]
    node, fleet = worker_of(gpu), gpu["maxReplicas"]
    found = [config for _, _, config in monitors("groups")]
    names = set()
    for config in found:
        chosen = places(config, [node])
        assert embedder_request(config, chosen).fits(node) == 1
        assert (chosen.gpus, chosen.cpus) == (node.resources["GPU"], node.resources["CPU"])
        assert chosen.most == fleet
        names.add(shared_name(config, chosen, 0))
    assert len(names) == 1
    assert {config.run.embedder_share for config in found} == {1.0}


@each_overlay
def test_the_desk_has_the_token_without_which_it_does_not_start(overlay: str) -> None:
    assert all(config.desk.host == "0.0.0.0" for _, _, config in monitors(overlay))
    desks = [c for name, c in containers(overlay) if name.endswith("/desk")]
    assert len(desks) == len(monitors(overlay))
    for desk in desks:
        [token] = [v for v in desk["env"] if v["name"] == "CONCLAD_DESK_TOKEN"]
        assert token["valueFrom"]["secretKeyRef"] == {"name": "conclad-desk-token", "key": "token"}


@pytest.mark.parametrize("overlay", ["cpu", "gpu", "s3-postgres"])
def test_embedders_follow_the_feed_onto_workers_that_have_room_for_them(overlay: str) -> None:
    [(_, _, config)] = monitors(overlay)
    groups = {
        group["groupName"]: (worker_of(group), group["maxReplicas"])
        for group in ray_cluster(overlay)["spec"]["workerGroupSpecs"]
    }
    chosen = places(config, [node for node, _ in groups.values()])
    ask = embedder_request(config, chosen)
    # One embedder a worker, on GPUs where the overlay has some, and as many as may be started.
    fit = {name: (ask.fits(node), most) for name, (node, most) in groups.items()}
    assert fit["gpu" if "gpu" in groups else "cpu"] == (1, chosen.most)
    assert chosen.gpus == float("gpu" in groups)
    assert chosen.least < chosen.most


def worker_of(group: dict[str, Any]) -> Node:
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    cpus = float(group["rayStartParams"].get("num-cpus") or limits["cpu"])
    gpus = float(limits.get("nvidia.com/gpu", 0))
    return Node({"CPU": cpus, "GPU": gpus}, group.get("labels", {}), group["groupName"])


def test_buckets_and_database_replace_the_volumes() -> None:
    assert of_kind("s3-postgres", "PersistentVolumeClaim") == []
    [places] = [m for m in of_kind("s3-postgres", "ConfigMap") if "conclad-places" in str(m)]
    config = load(environ=places["data"]).config
    assert config.feed.path.startswith("s3://")
    assert config.state.dir.startswith("s3://")
    assert str(config.state.url).startswith("postgresql://")
    workers = [c for name, c in containers("s3-postgres") if name.endswith("ray-worker")]
    for worker in workers:
        variables = {variable["name"] for variable in worker["env"]}
        assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"} <= variables
        assert "PGPASSWORD" not in variables, "workers never see the database"
        [endpoint] = [v["value"] for v in worker["env"] if v["name"] == "AWS_ENDPOINT_URL"]
        assert endpoint == places["data"]["AWS_ENDPOINT_URL"]


@each_overlay
def test_alerts_and_dashboards_are_those_of_the_repository(overlay: str) -> None:
    [rule] = of_kind(overlay, "PrometheusRule")
    groups = [
        group
        for file in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
        for group in yaml.safe_load(file.read_text())["groups"]
    ]
    assert rule["spec"]["groups"] == groups, "run: python deploy/kuberay/write_prometheus_rule.py"
    boards = [
        manifest
        for manifest in of_kind(overlay, "ConfigMap")
        if manifest["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    ]
    shown = {name: json.loads(text) for one in boards for name, text in one["data"].items()}
    # By their own names: after an upgrade those of before would otherwise be shown, too.
    assert {one["metadata"]["name"] for one in boards} == {
        Path(name).stem.replace("conclad", "conclad-dashboard") for name in shown
    }
    kept = {
        file.name: json.loads(file.read_text())
        for file in (DEPLOY / "grafana" / "dashboards").glob("*.json")
    }
    assert shown == kept
