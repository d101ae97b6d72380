"""The third page: does the feed flow, and what holds it up?"""

from __future__ import annotations

from monitor.telemetry.dashboards.model import SOURCE, Board, Panel, Query, row

_STAGES = "conclad_stage_duration_seconds"
#: Only the processes that serve our page, whatever else the same Prometheus scrapes.
_OURS = "and on (instance, job) conclad_build_info"


def pipeline() -> Board:
    return Board(
        uid="conclad-pipeline",
        title="conclad / Pipeline",
        description="Throughput, lag, stage times, actors, disk, and the machines of the cluster.",
        panels=(*_flow(), *_stages(), *_feed(), *_process(), *_account(), *_machines()),
        period="now-6h",
    )


def _flow() -> tuple[Panel, ...]:
    return (
        Panel(
            "Images per second",
            "stat",
            "Images that were judged, rejected or recognised as duplicates, per second.",
            [Query(f"sum(rate(conclad_images_total{{{SOURCE}}}[$__rate_interval]))")],
            width=6,
            height=4,
            unit="cps",
        ),
        Panel(
            "Input lag",
            "stat",
            "How long the oldest file that waits has been waiting.",
            [Query("max(conclad_input_lag_seconds)")],
            width=6,
            height=4,
            unit="s",
            steps=((None, "green"), (300, "orange"), (600, "red")),
        ),
        Panel(
            "Files waiting",
            "stat",
            "Files that are new, or of which some batches are still to do.",
            [Query("sum(conclad_files_waiting)")],
            width=6,
            height=4,
        ),
        Panel(
            "Batches pending",
            "stat",
            "Batches that are planned and not committed yet.",
            [Query("sum(conclad_batches_pending)")],
            width=6,
            height=4,
        ),
        Panel(
            "Throughput by source",
            "timeseries",
            "Images per second, by source.",
            [
                Query(
                    f"sum by (source) (rate(conclad_images_total{{{SOURCE}}}[$__rate_interval]))",
                    "{{source}}",
                )
            ],
            unit="cps",
            stacked=True,
        ),
        Panel(
            "Lag",
            "timeseries",
            "How long the oldest waiting file has waited. A line that climbs steadily: files come "
            "faster than they are judged, or nothing is judged at all.",
            [Query("max(conclad_input_lag_seconds)", "oldest file")],
            unit="s",
        ),
    )


def _stages() -> tuple[Panel, ...]:
    by_stage = f"sum by (stage, le) (rate({_STAGES}_bucket[$__rate_interval]))"
    return (
        row("Stages"),
        Panel(
            "Stage times, median",
            "timeseries",
            "How long a stage takes for one batch: half of them take less.",
            [Query(f"histogram_quantile(0.5, {by_stage})", "{{stage}}")],
            width=8,
            unit="s",
        ),
        Panel(
            "Stage times, 95%",
            "timeseries",
            "How long a stage takes for one batch: one in twenty takes longer.",
            [Query(f"histogram_quantile(0.95, {by_stage})", "{{stage}}")],
            width=8,
            unit="s",
        ),
        Panel(
            "Where the time goes",
            "timeseries",
            "Seconds of work per second, by stage. Above 1: several batches are worked on at once.",
            [Query(f"sum by (stage) (rate({_STAGES}_sum[$__rate_interval]))", "{{stage}}")],
            width=8,
            unit="s",
            stacked=True,
        ),
    )


def _feed() -> tuple[Panel, ...]:
    return (
        row("Feed"),
        Panel(
            "Files, by state",
            "timeseries",
            "Quarantined files could not be read; changed files were altered after they had been "
            "read. Both need somebody who looks.",
            [Query('sum by (state) (conclad_files{state!="done"})', "{{state}}")],
            width=8,
            decimals=0,
        ),
        Panel(
            "Rejected, by reason",
            "timeseries",
            "Images per second that could not be judged, by reason.",
            [
                Query(
                    "sum by (reason) (rate(conclad_images_rejected_total"
                    f"{{{SOURCE}}}[$__rate_interval]))",
                    "{{reason}}",
                )
            ],
            width=8,
            unit="cps",
            stacked=True,
            nothing="None",
        ),
        Panel(
            "From capture to verdict",
            "timeseries",
            "Time between the capture of the latest image of a source and its verdict, by the "
            "clock of the camera.",
            [
                Query(
                    f"max by (source) (conclad_source_last_commit_timestamp_seconds{{{SOURCE}}} - "
                    f"conclad_source_last_capture_timestamp_seconds{{{SOURCE}}})",
                    "{{source}}",
                )
            ],
            width=8,
            unit="s",
            least=None,
        ),
        Panel(
            "Batches",
            "timeseries",
            "Batches per second. Quarantined ones were given up after several tries.",
            [Query("sum by (state) (rate(conclad_batches_total[$__rate_interval]))", "{{state}}")],
            unit="cps",
        ),
        Panel(
            "Pools, by state",
            "timeseries",
            "Pools that are not finished. Waiting is the people's turn; held waits for an "
            "operator.",
            [
                Query(
                    'sum by (state) (conclad_pools{state!~"quiet|resolved|unresolved"})',
                    "{{state}}",
                )
            ],
            decimals=0,
        ),
    )


def _process() -> tuple[Panel, ...]:
    return (
        row("Processes"),
        Panel(
            "Actors up",
            "timeseries",
            "Actors that are up, by role, and those that load or wait for a node.",
            [
                Query("sum by (role) (conclad_actors_up)", "{{role}}"),
                Query("sum by (role) (conclad_actors_starting) > 0", "{{role}}, starting"),
            ],
            width=8,
            decimals=0,
        ),
        Panel(
            "Actor restarts",
            "timeseries",
            "Actors that died and were started again, within an hour. Now and then is harmless: "
            "their batches are done again and counted once.",
            [Query("sum by (role) (increase(conclad_actor_restarts_total[1h]))", "{{role}}")],
            width=8,
            decimals=0,
        ),
        Panel(
            "Memory of the coordinator",
            "timeseries",
            "Resident memory of the process that serves the metrics. Actors are other processes: "
            "see Ray's own dashboards.",
            [Query(f"process_resident_memory_bytes {_OURS}", "{{instance}}")],
            width=8,
            unit="bytes",
        ),
        Panel(
            "Processor time of the coordinator",
            "timeseries",
            "Cores that the coordinator keeps busy.",
            [Query(f"rate(process_cpu_seconds_total[$__rate_interval]) {_OURS}", "{{instance}}")],
            width=8,
        ),
        Panel(
            "Reading the store for this page",
            "timeseries",
            "How long one look at the store took. It grows with the number of sources.",
            [Query("max(conclad_store_read_seconds)", "seconds")],
            width=8,
            unit="s",
        ),
        Panel(
            "Store",
            "stat",
            "Whether the store could be read at the last scrape.",
            [Query("min(conclad_store_up)")],
            width=8,
            steps=((None, "red"), (1, "green")),
            words={"0": ("out of reach", "red"), "1": ("readable", "green")},
            nothing="not reached",
        ),
    )


def _account() -> tuple[Panel, ...]:
    return (
        row("Is everything there?"),
        Panel(
            "Feed",
            "stat",
            "Whether the folder or bucket of the feed can be listed and read. While it is away the "
            "monitor waits, and goes on by itself.",
            [Query("min(conclad_feed_up)")],
            width=4,
            steps=((None, "red"), (1, "green")),
            words={"0": ("away", "red"), "1": ("there", "green")},
            nothing="not reached",
        ),
        Panel(
            "Images without a place",
            "stat",
            "Images of the feed that have neither a verdict nor a reason nor a place in a queue. "
            "Anything but 0 is a fault of the monitor: 'conclad store check' names the files.",
            [Query("sum(conclad_images_unaccounted)")],
            width=4,
            decimals=0,
            steps=((None, "green"), (1, "red")),
        ),
        Panel(
            "Where the images of the feed are",
            "bargauge",
            "All images of the files that were opened, by where they are; together they are all "
            "that was listed.",
            [
                Query(
                    "sum by (place) (conclad_account_images)",
                    "{{place}}",
                    instant=True,
                ),
                Query("sum(conclad_account_images_listed)", "listed", instant=True),
            ],
            width=8,
            decimals=0,
        ),
        Panel(
            "What the monitor waits for",
            "timeseries",
            "1 while the monitor waits for an outage to end, by what is away: the feed, the store, "
            "the disk, a device, the cluster.",
            [Query("max by (kind) (conclad_outage)", "{{kind}}")],
            width=8,
            decimals=0,
            steps=((None, "text"), (1, "red")),
        ),
        Panel(
            "Quarantined, waiting for a person",
            "timeseries",
            "Files, batches and images that could not be processed and were quarantined. 'conclad "
            "quarantine list' says why.",
            [Query("sum by (what) (conclad_quarantined)", "{{what}}")],
            width=6,
            decimals=0,
        ),
        Panel(
            "Sources, and those without figures of their own",
            "timeseries",
            "All sources are watched and judged; from metrics.sources_most on the others share "
            "their figures.",
            [
                Query("sum(conclad_sources)", "sources"),
                Query("sum(conclad_sources_capped)", "without figures of their own"),
            ],
            width=6,
            decimals=0,
        ),
        Panel(
            "Messages that could not be delivered",
            "timeseries",
            "Consecutive failures by receiver; 0 after a success.",
            [Query("max by (receiver) (conclad_webhook_failures)", "{{receiver}}")],
            width=6,
            decimals=0,
            nothing="no receivers",
        ),
        Panel(
            "Forgotten, as old as it may become",
            "timeseries",
            "Digests and events that retention has removed, per second (state.keep_digests_days, "
            "state.keep_events_days).",
            [
                Query(
                    "sum by (what) (rate(conclad_forgotten_total[$__rate_interval]))",
                    "{{what}}",
                )
            ],
            width=6,
            unit="cps",
        ),
    )


#: Said where Prometheus does not scrape Ray: on one machine there is nothing to scrape.
_NO_RAY = "Ray is not scraped here"


def _machines() -> tuple[Panel, ...]:
    """Ray's own metrics; which names there are is Ray's business, and a test asks it."""
    return (
        row("Disk and cluster"),
        Panel(
            "Free disk of the state",
            "timeseries",
            "Share of the disk of the state that is free, of its space and its inodes. Below a "
            "tenth an alert fires; on a full disk the monitor waits. Missing where the state is in "
            "a bucket.",
            [
                Query(
                    "min by (group) (conclad_state_disk_free_bytes) / "
                    "max by (group) (conclad_state_disk_size_bytes)",
                    "free {{group}}",
                ),
                Query(
                    "min by (group) (conclad_state_disk_free_inodes_ratio)",
                    "free inodes {{group}}",
                ),
            ],
            width=8,
            unit="percentunit",
            steps=((None, "text"), (0.1, "red")),
            nothing="in a bucket",
        ),
        Panel(
            "GPUs, how busy",
            "timeseries",
            "Use of each GPU of the cluster. Low while files wait: decoding is too slow for it.",
            [
                Query(
                    'max by (instance, GpuIndex) (ray_node_gpus_utilization{job="ray"})',
                    "{{instance}} {{GpuIndex}}",
                )
            ],
            width=8,
            unit="percent",
            nothing="no GPUs, or Ray is not scraped here",
        ),
        Panel(
            "GPUs, memory in use",
            "timeseries",
            "Memory in use of each GPU. Near its size, batches or the number of embedders are too "
            "large.",
            [
                Query(
                    'max by (instance, GpuIndex) (ray_node_gram_used{job="ray"})',
                    "{{instance}} {{GpuIndex}}",
                )
            ],
            width=8,
            unit="mbytes",
            nothing="no GPUs, or Ray is not scraped here",
        ),
        Panel(
            "Processors of the nodes",
            "timeseries",
            "Use of the processors of each node of the cluster.",
            [
                Query(
                    'max by (instance) (ray_node_cpu_utilization{job="ray"})',
                    "{{instance}}",
                )
            ],
            width=8,
            unit="percent",
            nothing=_NO_RAY,
        ),
        Panel(
            "Memory of the nodes",
            "timeseries",
            "Share of each node's memory in use. Above nine tenths Ray kills actors to save it.",
            [
                Query(
                    'max by (instance) (ray_node_mem_used{job="ray"}) / '
                    'max by (instance) (ray_node_mem_total{job="ray"})',
                    "{{instance}}",
                )
            ],
            width=8,
            unit="percentunit",
            nothing=_NO_RAY,
        ),
        Panel(
            "Nodes of the cluster",
            "timeseries",
            "Nodes that are there, by type, and those that the autoscaler has asked for. Pending "
            "for long: a quota, or no machine of that kind to be had.",
            [
                Query(
                    'sum by (NodeType) (autoscaler_active_nodes{job="ray"})',
                    "{{NodeType}}",
                ),
                Query(
                    'sum by (NodeType) (autoscaler_pending_nodes{job="ray"}) > 0',
                    "{{NodeType}}, pending",
                ),
            ],
            width=8,
            decimals=0,
            nothing="no autoscaler is scraped here",
        ),
    )
