// Results of the cells of a session: values in media types. The driver in the file beside this one takes the
// function away, so that no cell finds it.
globalThis[Symbol.for('tavern.results')] = (writeAll) => {
  'use strict';
  // Cells may give these names to something else.
  const { ArrayBuffer, Atomics, Buffer, Date, Error, Int32Array, JSON, Map, Math, Object, Promise, SharedArrayBuffer } =
    globalThis;
  const { String, Symbol, require } = globalThis;
  const timers = require('timers');
  const util = require('util');
  const vm = require('vm');
  // The bounds of results. The service holds each of them as well.
  const RESULTS = 32, RESULT_BYTES = 8 << 20, CELL_BYTES = 32 << 20, HTML_BYTES = 1 << 20, MESSAGE_BYTES = 16 << 20;
  const SECONDS = 5, LONG = 2000;
  const RESULT = 3;
  // The longest write to a pipe that is whole or not at all, less the head of a frame and its mark.
  const PIECE = 4096 - 5;
  const pause = new Int32Array(new SharedArrayBuffer(4));
  const SHOW = Symbol.for('Jupyter.display');

  let cell = 0, count = 0, bytes = 0, dropped = 0, pending = [];

  const isType = (text) => text.length <= 127 && /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/.test(text);
  const isScript = (type) => /\/(?:x-)?(?:javascript|ecmascript)$/.test(type);
  const isJson = (type) => type === 'application/json' || type.endsWith('+json');
  const isText = (type) => type.startsWith('text/') || type.endsWith('+xml') || type === 'application/xml';
  const isInterrupt = (error) => error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';

  // Runs code of a value for a limited time. An interrupt ends it too.
  const WORK = 'the code by which a value shows itself';
  const call = new vm.Script(`this[${JSON.stringify(WORK)}]()`, { filename: 'node:results' });
  const bounded = (work, timeout) => {
    Object.defineProperty(globalThis, WORK, { configurable: true, value: work });
    try {
      return call.runInThisContext({ timeout, breakOnSigint: true, displayErrors: false });
    } finally {
      delete globalThis[WORK];
    }
  };

  // The width and the height of a PNG or a JPEG in pixels, as its head has them.
  const sizeOfPicture = (data) => {
    if (data.length >= 24 && data.toString('latin1', 0, 8) === '\x89PNG\r\n\x1a\n') {
      return { width: data.readUInt32BE(16), height: data.readUInt32BE(20) };
    }
    if (data.length < 2 || data.readUInt16BE(0) !== 0xffd8) return null;
    for (let at = 2; at + 9 <= data.length && data[at] === 0xff; at += 2 + data.readUInt16BE(at + 2)) {
      const marker = data[at + 1];
      if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
        return { width: data.readUInt16BE(at + 7), height: data.readUInt16BE(at + 5) };
      }
    }
    return null;
  };
  // Content as the service reads it, with its size in bytes.
  const encoded = (type, content, metadata) => {
    if (isJson(type)) {
      let text = content;
      try {
        if (typeof text === 'string') JSON.parse(text);
        else text = JSON.stringify(content);
      } catch (error) {
        if (typeof text !== 'string') throw error;
        text = JSON.stringify(content);
      }
      return [Buffer.from(text).toString(), Buffer.byteLength(text)];
    }
    const isView = ArrayBuffer.isView(content);
    const isBytes = isView || content instanceof ArrayBuffer;
    const data = isView ? Buffer.from(content.buffer, content.byteOffset, content.byteLength)
      : isBytes ? Buffer.from(content) : null;
    if (isText(type)) {
      const text = data ?? Buffer.from(String(content));
      return [text.toString(), text.length];
    }
    const isEncoded = typeof content === 'string' && /^[A-Za-z0-9+/\s]*={0,2}\s*$/.test(content);
    if (!isBytes && !isEncoded) throw new Error(`${type} is neither bytes nor Base64`);
    const binary = data ?? Buffer.from(content, 'base64');
    const size = sizeOfPicture(binary);
    if (size) metadata[type] = size;
    return [binary.toString('base64'), binary.length];
  };

  const total = (bundle) => [...bundle.data.values()].reduce((sum, [, size]) => sum + size, 0);
  const leaveOut = (bundle, type, size) => {
    bundle.data.delete(type);
    bundle.notes.push(`<${type} of ${size} bytes left out>`);
    if (type !== 'text/html' || size > RESULT_BYTES) bundle.dropped += 1;
  };
  const fail = (bundle, name, error) => {
    const isLate = error?.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
    let said = '';
    try {
      said = util.types.isNativeError(error) ? `${error.name}: ${error.message}` : String(error);
    } catch {
      // An error that cannot be shown is a failure without a message.
    }
    const end = isLate ? `took longer than ${SECONDS} s` : `failed: ${said.slice(0, LONG)}`;
    bundle.notes.push(`<${name} ${end}>`);
  };
  const take = (bundle, made) => {
    for (const [name, content] of Object.entries(made ?? {})) {
      const type = name.toLowerCase();
      if (content === undefined || content === null || !isType(type) || isScript(type)) continue;
      try {
        const [text, size] = encoded(type, content, bundle.metadata);
        if (size > (type === 'text/html' ? HTML_BYTES : RESULT_BYTES)) leaveOut(bundle, type, size);
        else bundle.data.set(type, [text, size]);
      } catch (error) {
        if (error?.code?.startsWith('ERR_SCRIPT_EXECUTION')) throw error;
        fail(bundle, type, error);
      }
    }
  };
  // Asks a value for each type that it has. A value may answer later, with a promise.
  const read = (value) => {
    const bundle = { data: new Map(), metadata: {}, notes: [], text: '', dropped: 0, later: null };
    const until = Date.now() + 1000 * SECONDS;
    const attempt = (name, make) => {
      const left = Math.ceil(until - Date.now());
      if (left <= 0) return undefined;
      try {
        return bounded(make, left);
      } catch (error) {
        if (isInterrupt(error)) throw error;
        fail(bundle, name, error);
        return undefined;
      }
    };
    bundle.text = attempt('util.inspect', () => util.inspect(value)) ?? bundle.notes[0] ?? '';
    if (!bundle.notes.length) attempt('text/plain', () => take(bundle, { 'text/plain': bundle.text }));
    const answers = (found) => {
      if (util.types.isPromise(found)) bundle.later = found;
      else take(bundle, found);
    };
    attempt('Jupyter.display', () => {
      const isAsked = value !== null && value !== undefined && typeof value[SHOW] === 'function';
      if (isAsked) answers(value[SHOW]());
    });
    return bundle;
  };
  const settled = async (bundle) => {
    let timer;
    const late = new Promise((_, reject) => {
      const error = new Error('late');
      error.code = 'ERR_SCRIPT_EXECUTION_TIMEOUT';
      timer = timers.setTimeout(() => reject(error), 1000 * SECONDS);
    });
    try {
      const made = await Promise.race([bundle.later, late]);
      bounded(() => take(bundle, made), 1000 * SECONDS);
    } catch (error) {
      fail(bundle, 'Jupyter.display', error);
    } finally {
      timers.clearTimeout(timer);
    }
    return bundle;
  };

  // An interrupt may end the sending at any place: every piece arrives whole or not at all.
  const tellInPieces = (body) => {
    for (let at = 0; at < body.length; at += PIECE) {
      const mark = body.length <= PIECE ? '' : at === 0 ? '<' : at + PIECE < body.length ? '+' : '>';
      const piece = body.subarray(at, at + PIECE);
      const head = Buffer.alloc(4 + mark.length, mark);
      head.writeUInt32LE(mark.length + piece.length);
      if (mark) head.write(mark, 4);
      writeAll(RESULT, Buffer.concat([head, piece]));
    }
  };
  const send = (origin, bundle) => {
    while (bundle.data.size && total(bundle) + 4 * bundle.notes.join('\n').length > RESULT_BYTES) {
      const [type, [, size]] = [...bundle.data].sort(([, one], [, other]) => other[1] - one[1])[0];
      leaveOut(bundle, type, size);
    }
    if (bundle.notes.length) {
      const plain = bundle.data.get('text/plain')?.[0];
      take(bundle, { 'text/plain': [...(plain ? [plain] : []), ...bundle.notes].join('\n') });
    }
    const size = total(bundle);
    dropped += bundle.dropped;
    const data = Object.fromEntries([...bundle.data].map(([type, [text]]) => [type, text]));
    const known = Object.entries(bundle.metadata).filter(([type]) => bundle.data.has(type));
    const metadata = known.length ? JSON.stringify(Object.fromEntries(known)) : '';
    const isFull = count >= RESULTS || bytes + size > CELL_BYTES;
    const body = isFull ? null : Buffer.from(JSON.stringify({ result: { cell, origin, data, metadata } }));
    if (body === null || body.length > MESSAGE_BYTES) {
      dropped += 1;
    } else if (cell) {
      count += 1;
      bytes += size;
      tellInPieces(body);
      // Text that is printed later comes later if the service has read this by then.
      if (origin !== 'expression') Atomics.wait(pause, 0, 0, 2);
    }
  };
  const display = (...values) => {
    for (const value of values) {
      if (count >= RESULTS) {
        dropped += 1;
        continue;
      }
      const bundle = read(value);
      if (bundle.later) pending.push(settled(bundle).then((whole) => send('display', whole)));
      else send('display', bundle);
    }
  };
  Object.defineProperty(globalThis, 'display', { configurable: true, writable: true, value: display });

  return {
    begin: (number) => {
      [cell, count, bytes, dropped, pending] = [number, 0, 0, 0, []];
    },
    // Shows the value of the cell, after everything that was shown before. Returns its text.
    value: async (value) => {
      await Promise.allSettled(pending);
      const bundle = read(value);
      send('expression', bundle.later ? await settled(bundle) : bundle);
      return bundle.text;
    },
    // Waits for the values that answer with a promise.
    settled: () => Promise.allSettled(pending),
    // Ends the results of a cell: a timer that continues shows nothing until the next one.
    end: () => {
      cell = 0;
      return dropped;
    },
  };
};
