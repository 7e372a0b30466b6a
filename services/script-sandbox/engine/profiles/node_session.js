(() => {
  'use strict';
  // Cells may give these names to something else.
  const { Atomics, Buffer, Error, Int32Array, JSON, Math, Number, Object } = globalThis;
  const { Promise, SharedArrayBuffer, String, Symbol, process, require } = globalThis;
  const fs = require('fs');
  const net = require('net');
  const util = require('util');
  const vm = require('vm');
  const { Writable } = require('stream');
  const RESULT = 3, JOB = 5, SHOWN = 50, LONG = 2000;
  const MOST_CAUSES = 8;
  const RESULTS = Symbol.for('tavern.results');
  const sources = new Map();
  const waiters = new Set();
  let interrupt = null;

  const wellFormed = (text) => Buffer.from(String(text), 'utf8');
  const cut = (text, limit) => {
    const data = wellFormed(text);
    let end = Math.min(limit, data.length);
    while (end > 0 && end < data.length && (data[end] & 0xc0) === 0x80) end -= 1;
    return [data.subarray(0, end).toString('utf8'), data.length - end];
  };
  const writeAll = (fd, data) => {
    for (let sent = 0; sent < data.length; ) {
      try {
        sent += fs.writeSync(fd, data, sent);
      } catch (error) {
        // A program that shares the pipe can have made it non-blocking.
        if (error.code !== 'EAGAIN') throw error;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      }
    }
  };
  const tell = (message) => {
    const body = Buffer.from(JSON.stringify(message), 'utf8');
    const head = Buffer.alloc(4);
    head.writeUInt32LE(body.length);
    writeAll(RESULT, Buffer.concat([head, body]));
  };
  const results = globalThis[RESULTS](writeAll);
  delete globalThis[RESULTS];
  // An interrupt can fall into the middle of what Node does for a stream, which would then wait for
  // ever for a write that is over. So what a cell prints keeps no state: it is written at once.
  const printing = (fd) => {
    const stream = new Writable();
    stream.fd = fd;
    stream.write = (data, encoding, done = encoding) => {
      const encoded = typeof data === 'string' && typeof encoding === 'string';
      writeAll(fd, Buffer.from(data, encoded ? encoding : undefined));
      if (typeof done === 'function') process.nextTick(done);
      return true;
    };
    return stream;
  };
  for (const [fd, name] of [[1, 'stdout'], [2, 'stderr']]) {
    const stream = printing(fd);
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream });
  }

  // The number of the cell that has this file name; 0 if none has.
  const cellOf = (file) => Number(/^<cell (\d+)>$/.exec(file)?.[1] ?? 0);
  const linesOf = (cell) => (sources.get(cell) ?? '').split('\n');
  const lineOf = (file, line) => {
    const cell = cellOf(file);
    if (cell) return linesOf(cell)[line - 1] ?? '';
    try {
      const path = file.replace(/^file:\/\//, '');
      return fs.statSync(path).size > 1 << 20 ? '' : fs.readFileSync(path, 'utf8').split('\n')[line - 1] ?? '';
    } catch {
      return '';
    }
  };
  const frame = (name, file, line, column) => {
    const cell = cellOf(file);
    return {
      file: cut(file, LONG)[0],
      cell,
      line,
      // The wrapper of a cell that awaits moves its columns, so none is reported.
      column: waiters.has(cell) ? 0 : column,
      function: cut(name ?? '', LONG)[0],
      source: cut(lineOf(file, line).trim(), LONG)[0],
    };
  };
  const isOwn = (file) => file.startsWith('node:') || file.startsWith('[eval]');

  // Whether a line belongs to the wrapper of a cell that awaits: the wrapper ends behind the cell's last line.
  const isAround = (file, line) => {
    const cell = cellOf(file);
    return waiters.has(cell) && line > linesOf(cell).length;
  };
  // The lines of an error, and the frames in them, without those of Node and of this driver.
  const lookAt = (error) => {
    const lines = String(error.stack).split('\n');
    const kept = [], frames = [];
    for (const line of lines) {
      const found = /^\s+at (?:(?:async )?(.*?) \()?(?:async )?([^()]+?):(\d+):(\d+)\)?$/.exec(line);
      if (found && (isOwn(found[2]) || isAround(found[2], Number(found[3])))) continue;
      const isMoved = found && waiters.has(cellOf(found[2]));
      kept.push(isMoved ? line.replace(/:\d+(\)?)$/, '$1') : line);
      if (found) frames.push(frame(found[1], found[2], Number(found[3]), Number(found[4])));
    }
    frames.reverse();
    return { lines, kept, frames };
  };
  const causes = (error) => {
    const kept = [];
    try {
      for (let cause = error.cause; cause !== undefined && kept.length < MOST_CAUSES; cause = cause?.cause) {
        const isError = util.types.isNativeError(cause);
        kept.push(`Caused by: ${isError ? lookAt(cause).kept.join('\n') : util.inspect(cause)}`);
      }
    } catch {
      // A cause that cannot be shown takes nothing else along.
    }
    return kept;
  };
  const describe = (error, limit) => {
    const isError = util.types.isNativeError(error);
    if (!isError) {
      const shown = cut(util.inspect(error), limit)[0];
      return { type: typeof error, message: shown, frames: [], omitted: 0, text: `Uncaught ${shown}` };
    }
    const { lines, kept, frames } = lookAt(error);
    const wrong = /^(<cell \d+>):(\d+)$/.exec(lines[0]);
    if (wrong && error.name === 'SyntaxError') {
      const column = (lines.slice(1).find((line) => /^\s*\^+\s*$/.test(line)) ?? '').indexOf('^') + 1;
      frames.push(frame('', wrong[1], Number(wrong[2]), column));
    }
    const omitted = Math.max(0, frames.length - 2 * SHOWN);
    if (omitted) frames.splice(SHOWN, omitted);
    return {
      type: cut(error.name, LONG)[0],
      message: cut(error.message, limit)[0],
      frames,
      omitted,
      text: cut([...kept, ...causes(error)].join('\n'), limit)[0],
    };
  };

  // Whether a variable of this name can be a property of the global object.
  const isFree = (name) => {
    const there = Object.getOwnPropertyDescriptor(globalThis, name);
    return !there || there.writable === true || there.set !== undefined;
  };
  const namesIn = (pattern) => {
    switch (pattern?.type) {
      case 'Identifier': return [pattern.name];
      case 'ObjectPattern': return pattern.properties.flatMap((each) => namesIn(each.value ?? each.argument));
      case 'ArrayPattern': return pattern.elements.flatMap(namesIn);
      case 'AssignmentPattern': return namesIn(pattern.left);
      case 'RestElement': return namesIn(pattern.argument);
      default: return [];
    }
  };
  // The source with words of the same length in it, so that every line and column stays what it is.
  const redeclarable = (source) => {
    if (!/\b(?:let|const)\b/.test(source)) return source;
    let tree;
    try {
      const acorn = require('internal/deps/acorn/acorn/dist/acorn');
      tree = acorn.parse(source, { ecmaVersion: 'latest', allowAwaitOutsideFunction: true });
    } catch {
      return source;
    }
    for (const { type, kind, start, declarations } of tree.body) {
      if (type !== 'VariableDeclaration' || (kind !== 'let' && kind !== 'const')) continue;
      if (!declarations.flatMap((each) => namesIn(each.id)).every(isFree)) continue;
      source = source.slice(0, start) + 'var'.padEnd(kind.length) + source.slice(start + kind.length);
    }
    return source;
  };
  const awaits = (source) => /\bawait\b/.test(source);
  // The source as Node's own prompt wraps input that awaits; null if it does not await, or cannot be wrapped.
  const aroundAwait = (source) => {
    if (!awaits(source)) return null;
    try {
      return require('internal/repl/await').processTopLevelAwait(`${source}\n`);
    } catch {
      return null;
    }
  };
  const compile = (cell, text) => {
    const source = redeclarable(text);
    const options = {
      filename: `<cell ${cell}>`,
      importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER,
    };
    // First, as `await (x)` could also be the call of a function.
    const around = aroundAwait(source);
    if (around !== null) {
      try {
        const script = new vm.Script(around, options);
        waiters.add(cell);
        return script;
      } catch {
        // The source itself says what is wrong.
      }
    }
    try {
      return new vm.Script(source, options);
    } catch (error) {
      // Where awaiting alone is no error, V8 says what is.
      if (awaits(source)) new vm.Script(`(async () => {\n${source}\n})`, { ...options, lineOffset: -1 });
      throw error;
    }
  };
  const evaluate = (cell, source) =>
    compile(cell, source).runInThisContext({ breakOnSigint: true, displayErrors: false });
  const isInterrupt = (error) => error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';

  const unlessInterrupted = (work) => {
    const givenUp = new Promise((_, reject) => {
      interrupt = () => {
        const error = new Error('the cell was interrupted while it waited');
        error.code = 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
        reject(error);
      };
    });
    return Promise.race([work, givenUp]);
  };
  const run = async ({ cell, source, limit }) => {
    sources.set(cell, source);
    results.begin(cell);
    const done = { cell, outcome: 'ok' };
    try {
      let value = evaluate(cell, source);
      if (util.types.isPromise(value)) {
        value = await unlessInterrupted(value);
        if (waiters.has(cell)) value = await unlessInterrupted(value?.value);
      }
      if (value !== undefined) {
        const [text, truncated] = cut(await unlessInterrupted(results.value(value)), limit);
        done.value = { text, truncated };
      }
    } catch (error) {
      done.outcome = isInterrupt(error) ? 'interrupted' : 'error';
      try {
        done.error = describe(error, limit);
      } catch {
        done.error = { type: 'Error', message: 'the error cannot be shown' };
      }
    }
    try {
      if (done.outcome !== 'interrupted') await unlessInterrupted(results.settled());
    } catch {
      // Results that come with a promise are left out.
    }
    interrupt = null;
    done.dropped = results.end();
    tell({ done });
  };

  // While a cell's own code begins and ends, Node takes this listener away for a moment: an interrupt
  // just then ends the session.
  process.on('SIGINT', () => interrupt?.());
  // An error between cells, in a timer or a forgotten promise, is reported and ends nothing.
  const report = (error) => writeAll(2, wellFormed(`Uncaught ${util.inspect(error)}\n`));
  process.on('uncaughtException', report);
  process.on('unhandledRejection', report);

  let waiting = Buffer.alloc(0);
  let busy = false;
  const next = async () => {
    if (busy) return;
    busy = true;
    while (waiting.length >= 4 && waiting.length >= 4 + waiting.readUInt32LE()) {
      const end = 4 + waiting.readUInt32LE();
      const order = JSON.parse(waiting.subarray(4, end).toString('utf8'));
      waiting = waiting.subarray(end);
      await run(order);
    }
    busy = false;
  };
  const job = new net.Socket({ fd: JOB, readable: true, writable: false });
  job.on('data', (part) => {
    waiting = Buffer.concat([waiting, part]);
    next();
  });
  job.on('end', () => process.exit(0));
  tell({ ready: {} });
})();
