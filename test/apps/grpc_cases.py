"""The cases of gRPC's interoperability tests with grpcio alone: messages are bytes, so nothing is generated.

grpc_cases.py serve PORT             answers on 127.0.0.1, without TLS
grpc_cases.py call TARGET CA CASE    runs one case over TLS; ends with 0 if it holds
"""

import sys
from concurrent import futures

import grpc

SERVICE = "grpc.testing.TestService"
LARGE_REQUEST = 271828
LARGE_ANSWER = 314159
PATTERN = [31415, 9, 2653, 58979]
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"
INITIAL = ("x-grpc-test-echo-initial", "test_initial_metadata_value")
TRAILING = ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")


def same(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"


# The server


def echo_metadata(context):
    metadata = dict(context.invocation_metadata())
    if INITIAL[0] in metadata:
        context.send_initial_metadata([(INITIAL[0], metadata[INITIAL[0]])])
    if TRAILING[0] in metadata:
        context.set_trailing_metadata([(TRAILING[0], metadata[TRAILING[0]])])


def empty_call(request, context):
    return b""


def unary_call(request, context):
    echo_metadata(context)
    return bytes(LARGE_ANSWER) if len(request) >= LARGE_REQUEST else request


def fails(request, context):
    """Before anything is sent: an answer of trailers alone, with metadata."""
    context.set_trailing_metadata([("x-reason", "of the app"), ("x-reason-bin", b"\x00\xff")])
    context.abort(grpc.StatusCode.UNKNOWN, request.decode())


def sizes(requests, context):
    return str(sum(len(one) for one in requests)).encode()


def downloads(request, context):
    for size in PATTERN:
        yield bytes(size)


def full_duplex(requests, context):
    echo_metadata(context)
    for one in requests:
        yield bytes(int(one))


def sleeps(request, context):
    ended = futures.Future()
    context.add_callback(lambda: ended.set_result(None))
    ended.result()
    yield b""


CANCELLED = futures.Future()


def waits(requests, context):
    context.add_callback(lambda: CANCELLED.done() or CANCELLED.set_result(None))
    try:
        for _ in requests:
            yield b"first"
    except grpc.RpcError:
        pass


def was_cancelled(request, context):
    """Answers when the stream before it has been cancelled at this server as well."""
    CANCELLED.result(timeout=60)
    return b"yes"


def serve(port):
    unary, up = grpc.unary_unary_rpc_method_handler, grpc.stream_unary_rpc_method_handler
    down, both = grpc.unary_stream_rpc_method_handler, grpc.stream_stream_rpc_method_handler
    handlers = {
        "EmptyCall": unary(empty_call),
        "UnaryCall": unary(unary_call),
        "Fails": unary(fails),
        "StreamingInputCall": up(sizes),
        "StreamingOutputCall": down(downloads),
        "FullDuplexCall": both(full_duplex),
        "Sleeps": down(sleeps),
        "Waits": both(waits),
        "WasCancelled": unary(was_cancelled),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


# The cases


def fails_with(call, code):
    try:
        call()
    except grpc.RpcError as error:
        same(error.code(), code)
        return error
    raise AssertionError(f"no {code}")


def empty_unary(channel):
    same(channel.unary_unary(f"/{SERVICE}/EmptyCall")(b""), b"")


def large_unary(channel):
    answer = channel.unary_unary(f"/{SERVICE}/UnaryCall")(bytes(LARGE_REQUEST))
    same(len(answer), LARGE_ANSWER)


def client_streaming(channel):
    sent = [27182, 8, 1828, 45904]
    answer = channel.stream_unary(f"/{SERVICE}/StreamingInputCall")(bytes(size) for size in sent)
    same(answer, str(sum(sent)).encode())


def server_streaming(channel):
    answers = channel.unary_stream(f"/{SERVICE}/StreamingOutputCall")(b"")
    same([len(one) for one in answers], PATTERN)


def ping_pong(channel):
    """Each request is sent when the answer to the one before has come."""
    pong = [futures.Future() for _ in PATTERN]

    def requests():
        for size, answered in zip(PATTERN, pong):
            yield str(size).encode()
            answered.result()

    found = []
    for one in channel.stream_stream(f"/{SERVICE}/FullDuplexCall")(requests()):
        found.append(len(one))
        pong[len(found) - 1].set_result(None)
    same(found, PATTERN)


def empty_stream(channel):
    same(list(channel.stream_stream(f"/{SERVICE}/FullDuplexCall")(iter(()))), [])


def never():
    """Requests that do not end before the call."""
    yield b"first"
    futures.Future().result(timeout=60)


def cancel_after_begin(channel):
    call = channel.stream_unary(f"/{SERVICE}/StreamingInputCall").future(never())
    call.cancel()
    same(call.code(), grpc.StatusCode.CANCELLED)


def cancel_after_first_response(channel):
    call = channel.stream_stream(f"/{SERVICE}/Waits")(never())
    same(next(call), b"first")
    call.cancel()
    fails_with(lambda: next(call), grpc.StatusCode.CANCELLED)
    same(channel.unary_unary(f"/{SERVICE}/WasCancelled")(b""), b"yes")


def timeout_on_sleeping_server(channel):
    call = channel.unary_stream(f"/{SERVICE}/Sleeps")(b"", timeout=0.001)
    fails_with(lambda: next(call), grpc.StatusCode.DEADLINE_EXCEEDED)


def timeout_while_the_server_sleeps(channel):
    """The same with time enough for the call to reach the server."""
    call = channel.unary_stream(f"/{SERVICE}/Sleeps")(b"", timeout=1)
    fails_with(lambda: next(call), grpc.StatusCode.DEADLINE_EXCEEDED)


def custom_metadata(channel):
    sent = [INITIAL, TRAILING]
    answer, unary = channel.unary_unary(f"/{SERVICE}/UnaryCall").with_call(b"one", metadata=sent)
    same(answer, b"one")
    stream = channel.stream_stream(f"/{SERVICE}/FullDuplexCall")(iter([b"1"]), metadata=sent)
    same(list(stream), [b"\0"])
    for call in (unary, stream):
        same(dict(call.initial_metadata()).get(INITIAL[0]), INITIAL[1])
        same(dict(call.trailing_metadata()).get(TRAILING[0]), TRAILING[1])


def failing(channel, message):
    call = channel.unary_unary(f"/{SERVICE}/Fails")
    return fails_with(lambda: call(message.encode()), grpc.StatusCode.UNKNOWN)


def status_code_and_message(channel):
    same(failing(channel, "test status message").details(), "test status message")


def special_status_message(channel):
    same(failing(channel, SPECIAL).details(), SPECIAL)


def trailers_only_metadata(channel):
    """One HEADERS with END_STREAM stays one: what was split in two would be initial metadata."""
    error = failing(channel, "no")
    found = dict(error.trailing_metadata())
    same((found.get("x-reason"), found.get("x-reason-bin")), ("of the app", b"\x00\xff"))
    assert "x-reason" not in dict(error.initial_metadata())


def unimplemented_method(channel):
    call = channel.unary_unary(f"/{SERVICE}/UnimplementedCall")
    fails_with(lambda: call(b""), grpc.StatusCode.UNIMPLEMENTED)


def unimplemented_service(channel):
    call = channel.unary_unary("/grpc.testing.UnimplementedService/UnimplementedCall")
    fails_with(lambda: call(b""), grpc.StatusCode.UNIMPLEMENTED)


def many_calls_at_once(channel):
    call = channel.unary_unary(f"/{SERVICE}/UnaryCall")
    calls = [call.future(str(index).encode()) for index in range(400)]
    same([int(one.result()) for one in calls], list(range(400)))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        _, _, target, authority, case = sys.argv
        with open(authority, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        with grpc.secure_channel(target, credentials) as channel:
            globals()[case](channel)
