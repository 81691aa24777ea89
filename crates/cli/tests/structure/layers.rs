//! The allowed directions of imports within each crate.

/// The layers of a crate, the lowest first, each with its files and folders (with a slash at the end). The
/// longest entry that contains a file applies.
pub(crate) type Layers = &'static [&'static [&'static str]];

/// Groups of files and folders that must not import each other.
pub(crate) type Siblings = &'static [&'static [&'static str]];

/// Crates that are not checked, with the reason.
pub(crate) const NOT_CHECKED: &[(&[&str], &str)] = &[];

/// Folders whose files may import each other in circles: crate, folder, reason.
pub(crate) const KNOTS: &[(&str, &str, &str)] =
    &[("abi", "header/", "one header of C, infiniband/verbs.h, whose structures point at each other")];

/// For each crate: a layer may import itself and the layers before it. The crate's root is above all layers.
pub(crate) const LAYERS: &[(&str, Layers)] = &[
    ("abi", ABI),
    ("cli", CLI),
    ("cm", CM),
    ("hca", HCA),
    ("lab", LAB),
    ("lro", LRO),
    ("nic", NIC),
    ("port", PORT),
    ("rdma", RDMA),
    ("sim", SIM),
    ("tso", TSO),
    ("wan", WAN),
    ("wire", WIRE),
];

/// For each crate: the files and folders that must not import each other.
pub(crate) const SIBLINGS: &[(&str, Siblings)] = &[
    ("cli", &[&["coalesce/", "nic/", "rdma/", "segment/", "sim/", "wan/"]]),
    ("lro", &[&["gro/", "netfpga.rs", "npu/", "verify/"]]),
    ("port", &[&["capture/", "packet_ring/", "packet_socket.rs", "tap.rs", "udp/", "xdp/"]]),
    ("hca", &[&["iwarp/", "star/"]]),
    ("rdma", &[&["iwarp/", "roce/", "star/"]]),
    ("sim", &[&["netfpga/", "overip/", "star/", "xls416/"]]),
];

const ABI: Layers = &[
    &[
        "cancellation.rs",
        "command_file.rs",
        "errno.rs",
        "header/",
        "live_objects.rs",
        "names.rs",
        "object.rs",
        "rates.rs",
        "stderr.rs",
        "users.rs",
        "variable.rs",
    ],
    &[
        "blocking.rs",
        "completion.rs",
        "configuration.rs",
        "doctor.rs",
        "event_queue.rs",
        "guarded_copy/",
        "process_memory.rs",
        "rdma_cm/device_number.rs",
        "request_builder.rs",
        "retired.rs",
    ],
    &["async_source.rs", "cq_notifier.rs", "event_dispatcher.rs"],
    &["adapter.rs", "context.rs", "device.rs", "port.rs", "waiting.rs"],
    // Objects that programs hold.
    &[
        "address_handle.rs",
        "comp_channel.rs",
        "completion_queue.rs",
        "domain.rs",
        "memory_region.rs",
        "memory_window.rs",
        "queue_pair.rs",
        "rdma_cm/file.rs",
        "rdma_cm/manager.rs",
        "shared_qp.rs",
        "shared_receive_queue.rs",
        "sharing.rs",
        "xrc_domain.rs",
    ],
    &["work_request.rs"],
    // Verbs.
    &[
        "bind_mw.rs",
        "buffer.rs",
        "create_cq.rs",
        "create_qp.rs",
        "extended_poll.rs",
        "extended_post.rs",
        "fork.rs",
        "from_kernel.rs",
        "get_async_event.rs",
        "get_cq_event.rs",
        "modify_qp.rs",
        "multicast.rs",
        "parent_domain.rs",
        "poll_cq.rs",
        "post.rs",
        "private.rs",
        "query_device.rs",
        "sysfs_attribute.rs",
        "unsupported.rs",
    ],
    &["close_device.rs", "open_device.rs", "rdma_cm/"],
    &["device_list.rs", "import.rs"],
];

const CLI: Layers = &[
    // Shared by several commands.
    &[
        "allocator.rs",
        "bins.rs",
        "capture_files/",
        "chart.rs",
        "completions.rs",
        "connecting.rs",
        "control.rs",
        "copy_loop.rs",
        "deadline.rs",
        "distinct.rs",
        "duration.rs",
        "engine_options.rs",
        "failure.rs",
        "headers.rs",
        "http.rs",
        "impairment_options.rs",
        "links.rs",
        "man.rs",
        "named_values.rs",
        "number.rs",
        "page/",
        "picture_file.rs",
        "recorder.rs",
        "runtime_dir.rs",
        "shared_device.rs",
        "side.rs",
        "signals.rs",
        "threads.rs",
        "toml_file.rs",
    ],
    &["coalesce/", "nic/", "rdma/", "segment/", "sim/", "wan/"],
    // Commands that consist of several parts.
    &["bench/", "demo/", "doctor/"],
    // Tests of all commands.
    &["named_commands.rs", "reference.rs"],
];

const CM: Layers = &[
    &["backlog.rs", "config.rs", "counters.rs", "deadlines.rs", "error.rs", "event.rs", "host.rs", "name.rs"],
    // Connections; ports; events not fetched.
    &["channel.rs", "ib/", "ports.rs"],
    &["held.rs"],
    // Exchanged between manager and driver.
    &["exchange.rs"],
    &["identifier.rs"],
    &["manager/"],
    // The commands of the kernel's device file.
    &["ucma/"],
];

const HCA: Layers = &[
    &[
        "arena.rs",
        "testing.rs",
        "cm/attributes.rs",
        "cm/deferred_disconnects.rs",
        "cm/error.rs",
        "cm/options.rs",
        "cm/tcp_ports.rs",
        "connect/",
        "connected_stream.rs",
        "descriptors.rs",
        "exchange.rs",
        "parcel.rs",
        "poll_time.rs",
        "recorder.rs",
        "spin.rs",
        "sync.rs",
    ],
    &["cm/endpoint.rs", "handover.rs", "iwarp/", "star/"],
    &["management_steering.rs"],
    &["cm/machine.rs", "cm/programs.rs", "cm/streams/", "config.rs"],
    &["ports/", "reach/"],
    &["wire.rs"],
    &["cm/joining.rs"],
    &["cm/channel.rs", "cm/commands.rs", "cm/execute.rs", "cm/manager.rs"],
    &["management.rs"],
    &["live_device.rs", "set_up.rs"],
    &["shared_device.rs"],
    &["driver.rs", "driver/"],
    &["adapter.rs", "queue_pair.rs", "region.rs"],
    &["cm/"],
];

const LAB: Layers = &[&["error.rs", "in_namespaces.rs", "side.rs"], &["host.rs"], &["lab.rs"]];

const LRO: Layers = &[
    &[
        "flow.rs",
        "frame.rs",
        "ident_and_checksum.rs",
        "identification.rs",
        "latest.rs",
        "reason.rs",
        "segment.rs",
        "stats.rs",
        "sync.rs",
        "table.rs",
        "tunnel.rs",
    ],
    &[
        "ack_frame.rs",
        "checksums.rs",
        "common/",
        "datagram.rs",
        "followers.rs",
        "mask.rs",
        "network.rs",
        "parse.rs",
        "reach.rs",
        "recent.rs",
        "recycle.rs",
        "run/",
        "template.rs",
    ],
    &["aggregate.rs", "config.rs", "outbox.rs"],
    &["burst.rs", "lossless.rs", "run_pool.rs"],
    &["datagrams.rs"],
    &["gro/", "netfpga.rs", "npu/"],
    &["coalescer.rs"],
    &["verify/"],
];

const NIC: Layers = &[
    &["partial_checksum.rs"],
    &[
        "config.rs",
        "delivery.rs",
        "distribution.rs",
        "host.rs",
        "queue.rs",
        "received.rs",
        "segment.rs",
        "stats.rs",
    ],
    &["control.rs", "error.rs", "memory_path.rs", "mesh.rs", "path_frame.rs"],
    &["memory_direction.rs", "memory_wire.rs"],
    &["delivery_thread.rs", "outputs.rs"],
    &["worker.rs"],
    &["card.rs"],
];

const PORT: Layers = &[
    &["arena.rs", "descriptor.rs"],
    &[
        "call_on_drop.rs",
        "clock.rs",
        "close_in_child.rs",
        "device.rs",
        "epoll.rs",
        "eventfd.rs",
        "interface_name.rs",
        "mapping.rs",
        "os_error.rs",
        "processor.rs",
        "quiet_thread.rs",
        "real_time.rs",
        "scheduling.rs",
        "spare_descriptor.rs",
        "stripped_tag.rs",
        "sync.rs",
        "tcp_owner.rs",
        "uninterrupted.rs",
        "unix_names.rs",
        "waker.rs",
        "wire_queue.rs",
    ],
    &["pool.rs"],
    &["mount_namespace.rs", "namespace.rs", "process.rs", "process_namespace.rs"],
    &["channels.rs", "ethtool.rs", "ipv6.rs", "link_events.rs", "netlink/", "packet_options.rs"],
    &["acknowledgements.rs", "capture/", "packet_ring/", "packet_socket.rs", "tap.rs", "udp/", "xdp/"],
    &["tap_wire.rs"],
];

const RDMA: Layers = &[
    // Objects and their rules.
    &["core/"],
    &["congestion/", "net/"],
    // The traits of a transport.
    &["transport/"],
    &["iwarp/", "roce/", "star/"],
    // The interface for programs and drivers.
    &["device/"],
];

const SIM: Layers = &[
    &["cpu.rs", "event_queue.rs", "parts.rs", "rate.rs", "simulation.rs", "timer.rs", "trace_hash.rs"],
    // Parts of a machine and of a network.
    &["generator.rs", "link.rs", "packet.rs", "pcie.rs", "switch.rs"],
    &["host/", "observe/"],
    // The interface of a model for experiments.
    &[
        "experiment/dimension.rs",
        "experiment/parameter.rs",
        "experiment/parameters.rs",
        "experiment/run_error.rs",
        "experiment/runner.rs",
    ],
    &["engine_memory.rs"],
    &["netfpga/", "overip/", "star/", "xls416/"],
    &["experiment/"],
];

const TSO: Layers = &[
    &["error.rs", "place.rs"],
    &["ip.rs"],
    &["checksum.rs", "fragment.rs", "tcp.rs", "tunnel.rs", "udp.rs"],
    &["plan.rs"],
    &["in_place.rs"],
    &["segments.rs"],
];

const WAN: Layers = &[
    &["calendar.rs", "decimal.rs", "error.rs", "ethernet.rs", "reason.rs", "trace.rs"],
    &[
        "bandwidth.rs",
        "duration.rs",
        "histogram.rs",
        "output.rs",
        "packet.rs",
        "probability.rs",
        "schedule.rs",
    ],
    // The configuration of the stages.
    &["jitter.rs", "loss.rs", "queue.rs", "reorder.rs"],
    &["impairments.rs", "stats.rs"],
    &["exits.rs", "random.rs", "sampler.rs", "too_big.rs"],
    &["stage/"],
    &["path.rs"],
];

const WIRE: Layers = &[
    &[
        "bytes.rs",
        "checksum.rs",
        "ethertype.rs",
        "header_options.rs",
        "instant.rs",
        "number_map.rs",
        "seq.rs",
        "tcp_flags.rs",
    ],
    &["engine.rs", "wheel.rs"],
    // Headers.
    &[
        "common_options.rs",
        "ethernet.rs",
        "ip.rs",
        "ipv4.rs",
        "ipv6.rs",
        "ipv6_extensions.rs",
        "pppoe.rs",
        "tcp.rs",
        "tcp_options.rs",
        "udp.rs",
        "virtio_net.rs",
        "vlan.rs",
    ],
    // Whole packets.
    &["frame_builder.rs", "ipv4_fragments.rs", "iwarp/", "packet_too_big.rs", "rdma/", "toeplitz.rs"],
    &["cm/", "star/"],
];
