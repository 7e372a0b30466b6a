"""Results of the cells of a session: values in media types. The driver in the file beside this one has them shown."""

import _thread
import binascii
import builtins
import io
import json
import os
import signal
import struct
import sys
import time
import types

RESULT, LONG = 3, 2000
# The bounds of results. The service holds each of them as well.
RESULTS, FIGURES, PIXELS, ROWS, COLUMNS = 32, 16, 2000, 1000, 100
RESULT_BYTES, CELL_BYTES, HTML_BYTES, METADATA_BYTES = 8 << 20, 32 << 20, 1 << 20, 32 << 10
MESSAGE_BYTES = 16 << 20
SECONDS, AGAIN = 5.0, 0.5
# The longest write to a pipe that is whole or not at all, less the head of a frame and its mark.
PIECE = 4096 - 5

METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "application/pdf": "_repr_pdf_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
}
# Variables of libraries that draw, set unless the user has chosen: without a screen, and as Jupyter does.
CHOICES = {"matplotlib": ("MPLBACKEND", "Agg"), "plotly": ("PLOTLY_RENDERER", "plotly_mimetype")}


def write(data):
    while data:
        try:
            data = data[os.write(RESULT, data):]
        except BlockingIOError:
            # A program that shares the pipe can have made it non-blocking.
            time.sleep(0.001)


def encode(message):
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace")


def tell(message):
    body = encode(message)
    write(struct.pack("<I", len(body)) + body)


def tell_in_pieces(body):
    """Sends a message that an interrupt may end at any place: every piece of it arrives whole or not at all."""
    if len(body) <= PIECE:
        write(struct.pack("<I", len(body)) + body)
        return
    for place in range(0, len(body), PIECE):
        mark = b"<" if place == 0 else b"+" if place + PIECE < len(body) else b">"
        piece = mark + body[place : place + PIECE]
        write(struct.pack("<I", len(piece)) + piece)


def wait_for_reader():
    """Waits a moment until the service has read everything, so that text that is printed later comes later."""
    try:
        import fcntl
        import termios

        until = time.monotonic() + 1
        while fcntl.ioctl(RESULT, termios.FIONREAD, bytes(4)) != bytes(4) and time.monotonic() < until:
            time.sleep(0.0002)
    except (ImportError, OSError):
        pass


def flush():
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def is_type(text):
    """Whether a text is a media type `a/b`."""
    parts = text.split("/") if isinstance(text, str) and len(text) <= 127 else []
    marks = set("!#$&^_.+-")
    return len(parts) == 2 and all(
        part and all(each.isascii() and each.isalnum() or each in marks for each in part) for part in parts
    )


def is_script(media_type):
    return media_type.partition("/")[2] in ("javascript", "x-javascript", "ecmascript", "x-ecmascript")


def is_json(media_type):
    return media_type == "application/json" or media_type.endswith("+json")


def is_text(media_type):
    return media_type.startswith("text/") or media_type.endswith("+xml") or media_type == "application/xml"


def from_base64(text):
    import base64

    return base64.b64decode("".join(text.split()), validate=True)


def is_a(value, module, name):
    """Whether a value is of a type of a library, which is not loaded for the question."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and issubclass(type(value), kind)


def method(value, name):
    """A method by which a value shows itself. A value that answers to every name has none."""
    try:
        canary = getattr(value, "_ipython_canary_method_should_not_exist_", None)
        found = getattr(value, name, None) if canary is None and not issubclass(type(value), type) else None
    except (KeyboardInterrupt, Overtime):
        raise
    except BaseException:
        return None
    return found if callable(found) else None


def size_of_picture(data):
    """The width and the height of a PNG or a JPEG in pixels, as its head has them."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        return dict(zip(("width", "height"), struct.unpack(">II", data[16:24])))
    place = 2
    while data[:2] == b"\xff\xd8" and place + 9 <= len(data) and data[place] == 0xFF:
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return {"width": width, "height": height}
        place += 2 + length
    return None


def picture(figure):
    """A figure of Matplotlib as PNG, of at most `PIXELS` in each direction."""
    import matplotlib

    if not figure.axes and not figure.lines:
        return None
    dpi = min(figure.dpi, PIXELS / max(*figure.get_size_inches(), 1e-9))
    out = io.BytesIO()
    # A box that follows the content could be of any size.
    with matplotlib.rc_context({"savefig.bbox": None}):
        figure.savefig(out, format="png", dpi=dpi)
    return out.getvalue()


def table(frame):
    """The table of a pandas frame in Markdown, cut in the middle where its text is."""
    option = sys.modules["pandas"].get_option

    def kept(count, most, least, bound):
        most, least = (min(most, bound), least) if most else (bound, bound)
        if count <= most:
            return list(range(count)), None
        half = max(min(least or most, most) // 2, 1)
        return [*range(half), *range(count - half, count)], half

    rows, row_gap = kept(len(frame), option("display.max_rows"), option("display.min_rows"), ROWS)
    columns, column_gap = kept(frame.shape[1], option("display.max_columns") or 20, None, COLUMNS)

    def label(name):
        parts = name if isinstance(name, tuple) else (name,)
        return ", ".join(str(part) for part in parts if part is not None)

    def texts(place):
        cells = frame.iloc[rows, place]
        lines = cells.to_string(index=False, header=False).split("\n")
        return lines if len(lines) == len(rows) else [str(cell) for cell in cells]

    index = frame.index
    grid = [[label(tuple(index.names)), *(label(index[row]) for row in rows)]]
    grid += [[label(frame.columns[place]), *(texts(place) if rows else [])] for place in columns]
    if row_gap is not None:
        for column in grid:
            column.insert(row_gap + 1, "...")
    if column_gap is not None:
        grid.insert(column_gap + 1, ["..."] * len(grid[0]))

    def line(cells):
        cells = (cell.strip().replace("|", "\\|").replace("\n", " ") for cell in cells)
        return "|" + "|".join(f" {cell} " if cell else "  " for cell in cells) + "|"

    head, *body = ([column[row] for column in grid] for row in range(len(grid[0])))
    return "\n".join([line(head), "|" + "--|" * len(grid), *map(line, body)])


class Overtime(BaseException):
    """The code by which a value shows itself takes too long."""


class Bundle:
    """A value in media types, of which `text` is its text as the value of a cell has it."""

    def __init__(self, include=None, exclude=None):
        self.include, self.exclude = include, exclude
        self.data, self.sizes, self.metadata, self.notes = {}, {}, {}, []
        self.text, self.step, self.dropped, self.is_shown = "", "", 0, False

    def read(self, value, only_text=False):
        """Asks a value for each type that it has."""
        self.attempt("repr", lambda: self.plain(value))
        self.text = self.text or "\n".join(self.notes)
        if only_text:
            return
        in_full, alone = method(value, "_repr_mimebundle_"), method(value, "_ipython_display_")
        if in_full:
            self.attempt("_repr_mimebundle_", lambda: self.asked(in_full))
        if alone and not in_full:
            failures = len(self.notes)
            self.attempt("_ipython_display_", lambda: (alone(), {})[1])
            self.is_shown = len(self.notes) == failures
        if alone and (in_full or self.is_shown):
            # Jupyter asks such a value for nothing else.
            return
        if is_a(value, "matplotlib.figure", "Figure"):
            self.attempt("savefig", lambda: {"image/png": picture(value)})
        for media_type, name in METHODS.items():
            found = media_type not in self.data and method(value, name)
            if found:
                self.attempt(name, lambda: self.one(media_type, found()))
        if is_a(value, "pandas", "DataFrame"):
            self.attempt("text/markdown", lambda: {"text/markdown": table(value)})
            resource = method(value, "_repr_data_resource_")
            if resource:
                self.attempt("_repr_data_resource_", lambda: {"application/vnd.dataresource+json": resource()})

    def plain(self, value):
        self.text = repr(value)
        return {"text/plain": self.text}

    def asked(self, in_full):
        try:
            return in_full(include=self.include, exclude=self.exclude)
        except TypeError as error:
            if error.__traceback__.tb_next is not None:
                raise
        return in_full()

    def one(self, media_type, made):
        if isinstance(made, tuple) and len(made) == 2:
            return {media_type: made[0]}, {media_type: made[1]}
        return {media_type: made}

    def attempt(self, name, make):
        """Takes the types that the code of a value makes. Its failure is a note in the text."""
        self.step = name
        try:
            made = make()
            made, about = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
            self.take(made or {}, about)
        except (KeyboardInterrupt, Overtime):
            raise
        except BaseException as error:
            self.fail(name, error)

    def fail(self, name, error):
        try:
            message = f": {error}" if str(error) else ""
        except Exception:
            message = ""
        self.notes.append(f"<{name} failed: {type(error).__name__}{message[:LONG]}>")

    def take(self, made, about):
        if isinstance(about, dict):
            self.metadata.update(about)
        for media_type, content in made.items():
            if content is None or not is_type(media_type):
                continue
            media_type = media_type.lower()
            wanted = self.include is None or media_type in self.include
            if wanted and media_type not in (self.exclude or ()) and not is_script(media_type):
                try:
                    self.put(media_type, content)
                except Exception as error:
                    self.fail(media_type, error)

    def put(self, media_type, content):
        if is_json(media_type):
            try:
                content = json.loads(content) if isinstance(content, str) else content
            except ValueError:
                # A text that is no JSON is a value of it.
                pass
            content = json.dumps(content, ensure_ascii=False)
        elif not is_text(media_type):
            data = from_base64(content) if isinstance(content, str) else bytes(content)
            if is_picture := size_of_picture(data):
                about = self.metadata.get(media_type)
                self.metadata[media_type] = {**is_picture, **about} if isinstance(about, dict) else is_picture
            content = binascii.b2a_base64(data, newline=False).decode()
        if isinstance(content, (bytes, bytearray)):
            content = content.decode("utf-8", "replace")
        encoded = str(content).encode("utf-8", "backslashreplace")
        is_binary = not is_text(media_type) and not is_json(media_type)
        size = len(data) if is_binary else len(encoded)
        self.data.pop(media_type, None)
        if size > (HTML_BYTES if media_type == "text/html" else RESULT_BYTES):
            self.leave_out(media_type, size)
        else:
            self.data[media_type], self.sizes[media_type] = encoded.decode(), size

    def leave_out(self, media_type, size):
        self.data.pop(media_type, None)
        self.notes.append(f"<{media_type} of {size} bytes left out>")
        self.dropped += media_type != "text/html" or size > RESULT_BYTES

    def size(self):
        return sum(self.sizes[media_type] for media_type in self.data)

    def finish(self, is_raw):
        """Keeps to the bounds, and writes the notes into the text. Returns the metadata as JSON."""
        while self.data and self.size() + 4 * sum(map(len, self.notes)) > RESULT_BYTES:
            largest = max(self.data, key=self.sizes.get)
            self.leave_out(largest, self.sizes[largest])
        if self.notes and not is_raw:
            self.put("text/plain", "\n".join([*filter(None, [self.data.get("text/plain")]), *self.notes]))
        try:
            metadata = json.dumps({name: about for name, about in self.metadata.items() if name in self.data and about})
        except Exception:
            metadata = "{}"
        return metadata if 2 < len(metadata) <= METADATA_BYTES else ""


class Results:
    """The results of cells."""

    def __init__(self):
        self.own, self.main = os.getpid(), _thread.get_ident()
        # Held while a result is sent, so that results of threads do not mix. A handler of a signal may show one as well.
        self.lock = _thread.RLock()
        self.cell, self.timing = 0, False
        self.count = self.bytes = self.drawn = self.dropped = 0

    def begin(self, cell):
        self.count = self.bytes = self.drawn = self.dropped = 0
        self.cell = cell

    def end(self):
        """Ends the results of a cell: those of a thread that continues are dropped until the next one."""
        with self.lock:
            self.cell = 0
        return self.dropped

    def bounded(self, work):
        """Runs the code by which a value shows itself for a limited time. Whether it came to its end."""
        if _thread.get_ident() != self.main:
            work()
            return True
        outer, began = self.timing, time.monotonic()
        handler = signal.signal(signal.SIGALRM, self.ring)
        rest, again = signal.getitimer(signal.ITIMER_REAL)
        try:
            try:
                self.timing = True
                signal.setitimer(signal.ITIMER_REAL, min(SECONDS, rest) if outer and rest else SECONDS, AGAIN)
                work()
                return True
            finally:
                self.timing = False
        except Overtime:
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
            self.timing = outer
            if rest:
                signal.setitimer(signal.ITIMER_REAL, max(rest - (time.monotonic() - began), 0.001), again)

    def ring(self, number, frame):
        if self.timing:
            raise Overtime

    def show(self, origin, value, **options):
        """Shows a value as a result, unless it has no origin. Returns its text."""
        if os.getpid() != self.own:
            # A fork has the output only.
            text = repr(value)
            if origin == "display":
                print(text)
            return text
        bundle = Bundle(**options)
        if self.count >= RESULTS and origin in ("display", "figure"):
            self.dropped += 1
            return ""
        if not self.bounded(lambda: bundle.read(value, only_text=origin is None)):
            bundle.notes.append(f"<{bundle.step} took longer than {SECONDS:.0f} s>")
            bundle.text = bundle.text or bundle.notes[-1]
        if origin is not None and not bundle.is_shown:
            self.send(origin, bundle)
        return bundle.text

    def send(self, origin, bundle, is_raw=False):
        metadata = bundle.finish(is_raw)
        size = bundle.size()
        for stream in (sys.stdout, sys.stderr):
            try:
                # Text that was printed before comes before.
                stream.flush()
            except Exception:
                pass
        with self.lock:
            self.dropped += bundle.dropped
            is_full = self.count >= RESULTS or self.bytes + size > CELL_BYTES
            result = {"cell": self.cell, "origin": origin, "data": bundle.data, "metadata": metadata}
            body = b"" if is_full or not bundle.data else encode({"result": result})
            if not body or len(body) > MESSAGE_BYTES:
                self.dropped += 1
            elif self.cell:
                self.count += 1
                self.bytes += size
                tell_in_pieces(body)
                if origin != "expression":
                    wait_for_reader()

    def display(self, *values, include=None, exclude=None, metadata=None, raw=False, display_id=None, **_):
        """Shows values as results of the cell, in the media types that they have."""
        for value in values:
            if raw:
                self.publish(value, metadata)
            else:
                self.show("display", value, include=include, exclude=exclude)
        handle = getattr(sys.modules.get("IPython.core.display_functions"), "DisplayHandle", None)
        return handle(None if display_id is True else display_id) if handle and display_id else None

    def publish(self, data, metadata=None, **_):
        """Shows a value of which the media types are given."""
        bundle = Bundle()
        bundle.attempt("display", lambda: (data, metadata))
        if os.getpid() == self.own:
            self.send("display", bundle, is_raw=True)

    def figures(self, is_drawn=True):
        """Shows the open figures of Matplotlib, and closes them."""
        open_ones = getattr(sys.modules.get("matplotlib._pylab_helpers"), "Gcf", None)
        if open_ones is None:
            return
        for manager in open_ones.get_all_fig_managers():
            if is_drawn and self.drawn < FIGURES:
                self.drawn += 1
                self.show("figure", manager.canvas.figure)
            else:
                self.dropped += 1
        open_ones.destroy_all()


class Hook:
    """Finds modules as ever, and leads the ways in which some show values to the results of the cell."""

    def __init__(self, results):
        self.results = results
        self.led = {
            "matplotlib.pyplot": self.lead_pyplot,
            "IPython.core.display_functions": self.lead_ipython,
            "plotly.io._renderers": self.lead_plotly,
        }

    def find_spec(self, name, path=None, target=None):
        if name in CHOICES:
            os.environ.setdefault(*CHOICES[name])
        lead = self.led.get(name)
        if lead is None:
            return None
        finders = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        load = getattr(getattr(spec, "loader", None), "exec_module", None)
        if load is not None:

            def exec_module(module):
                load(module)
                lead(module)

            spec.loader.exec_module = exec_module
        return spec

    def lead_pyplot(self, module):
        def show(*_, **__):
            """Shows the open figures as results of the cell, and closes them."""
            self.results.figures()

        module.show = show

    def lead_ipython(self, module):
        module.display = self.results.display
        module.publish_display_data = self.results.publish
        module.clear_output = lambda wait=False: None

    def lead_plotly(self, module):
        # Showing a figure needs no more of these two.
        module.ipython_display = types.SimpleNamespace(display=self.results.display)
        module.nbformat = module.nbformat or types.SimpleNamespace(__version__="5")
