from memfit.measuring.oom import is_device_oom, is_host_oom, read_log_line


def test_the_allocators_line_is_read() -> None:
    request = read_log_line(
        "W0000 00:00:1.5 1 bfc_allocator.cc:502] Allocator (bfc_cpu_allocator_for_gpu) ran out of memory "
        "trying to allocate 15.26MiB (rounded to 16000000)requested by op "
        "StatefulPartitionedCall/StatefulPartitionedCall/model/dense/MatMul"
    )
    assert request is not None
    assert (request.num_bytes, request.op, request.device) == (16_000_000, "model/dense/MatMul", "CPU:0")


def test_an_op_in_a_loop_is_named_once() -> None:
    request = read_log_line(
        "Allocator (bfc_cpu) ran out of memory trying to allocate 1.0MiB (rounded to 1048576)requested by op "
        "StatefulPartitionedCall/model/lstm/while/body/_144/model/lstm/while/lstm_cell/MatMul_1"
    )
    assert request is not None
    assert request.op == "model/lstm/while/lstm_cell/MatMul_1"


def test_a_line_without_an_op_or_a_rounded_size() -> None:
    request = read_log_line("Allocator (GPU_1_bfc) ran out of memory trying to allocate 2.00GiB")
    assert request is not None
    assert (request.num_bytes, request.op, request.device) == (2 * 2**30, None, "GPU:1")


def test_other_lines_tell_of_no_request() -> None:
    assert read_log_line("W0000 bfc_allocator.cc:513] ****____") is None
    assert read_log_line("RESOURCE_EXHAUSTED: OOM when allocating tensor") is None


def test_memory_errors_are_the_hosts_also_as_a_cause() -> None:
    error = RuntimeError("training failed")
    error.__cause__ = MemoryError()
    assert is_host_oom(error)
    assert not is_device_oom(error)


def test_what_an_error_interrupted_does_not_count() -> None:
    error = RuntimeError("training failed")
    error.__context__ = MemoryError()
    assert not is_host_oom(error)


def test_words_alone_are_no_out_of_memory() -> None:
    assert not is_device_oom(ValueError("OOM when allocating tensor: out of memory"))
