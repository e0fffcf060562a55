// `conjure serve` as a process, in a directory where nothing of this machine is left.

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, renameSync, rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';

// The key of saved auths, and the token: nobody's.
const KEY = 'a2V5LW9mLW5vYm9keS1rZXktb2Ytbm9ib2R5LWtleSE=';
const TOKEN = 'a-token-of-nobody';

export class Server {
  static make() {
    const root = realpathSync(mkdtempSync(`${tmpdir()}/conjure-page-`));
    for (const part of ['home', 'work', 'plugins', 'run', 'tmp']) {
      mkdirSync(`${root}/${part}`, { mode: 0o700 });
    }
    return new Server(root);
  }

  constructor(root) {
    this.root = root;
    this.work = `${root}/work`;
    this.data = `${root}/home/.local/share/conjure`;
    this.listen = '127.0.0.1:0';
    // The header that lets a request in.
    this.token = { authorization: `Bearer ${TOKEN}` };
  }

  // Puts a plugin into the directory of plugins, at once: it is never there in part.
  plugin(library, name = basename(library)) {
    const part = `${this.root}/tmp/library.part`;
    copyFileSync(library, part);
    // Trusted, as what comes with the program: others have a process of their own.
    mkdirSync(this.data, { recursive: true, mode: 0o700 });
    const digest = createHash('sha256').update(readFileSync(part)).digest('hex');
    appendFileSync(`${this.data}/trusted-plugins`, `${digest}\n`);
    renameSync(part, `${this.root}/plugins/${name}`);
  }

  // Says what it knows of models from its next start on.
  knows(models) {
    mkdirSync(this.data, { recursive: true, mode: 0o700 });
    writeFileSync(`${this.data}/models.toml`, models);
  }

  environment() {
    const home = `${this.root}/home`;
    return {
      PATH: process.env.PATH,
      HOME: home,
      XDG_CONFIG_HOME: `${home}/.config`,
      XDG_DATA_HOME: `${home}/.local/share`,
      XDG_STATE_HOME: `${home}/.local/state`,
      XDG_CACHE_HOME: `${home}/.cache`,
      XDG_RUNTIME_DIR: `${this.root}/run`,
      TMPDIR: `${this.root}/tmp`,
      CONJURE_PLUGIN_PATH: `${this.root}/plugins`,
      CONJURE_KEY: KEY,
      CONJURE_TOKEN: TOKEN,
      LANG: 'C.UTF-8',
      TZ: 'UTC',
      NO_COLOR: '1',
    };
  }

  spawn(args, stdio) {
    const options = { cwd: this.work, env: this.environment(), stdio };
    return spawn(process.env.CONJURE_BIN, args, options);
  }

  async start() {
    const args = ['serve', '--json', '--grace', '1', '--listen', this.listen];
    this.child = this.spawn(args, ['ignore', 'pipe', 'pipe']);
    this.said = '';
    this.child.stderr.on('data', (text) => (this.said += text));
    this.ended = new Promise((done) => this.child.once('exit', done));
    const lines = createInterface({ input: this.child.stdout });
    const first = new Promise((done) => lines.once('line', done));
    const line = await Promise.race([first, this.ended.then(() => null)]);
    if (!line) throw new Error(`the server ended: ${this.said}`);
    this.url = JSON.parse(line).url;
    // A server that is started again is at the same place.
    this.listen = this.url.replace('http://', '');
  }

  async stop(signal = 'SIGTERM') {
    if (!this.child) return;
    this.child.kill(signal);
    await this.ended;
    this.child = null;
  }

  // A link that lets a browser in, as a person gets it.
  async link() {
    const child = this.spawn(['serve', '--link', '--json'], ['ignore', 'pipe', 'inherit']);
    let said = '';
    child.stdout.on('data', (text) => (said += text));
    await new Promise((done) => child.once('exit', done));
    return JSON.parse(said).url;
  }

  // A request to the API.
  async api(method, path, body) {
    const answer = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: {
        ...this.token,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  // Installs a plugin, with all that it asks for.
  async install(library) {
    const answer = await fetch(`${this.url}/api/v1/plugins?yes=true`, {
      method: 'POST',
      headers: { ...this.token, 'content-type': 'application/octet-stream' },
      body: readFileSync(library),
    });
    if (!answer.ok) throw new Error(`${library} is not installed: ${await answer.text()}`);
  }

  async remove() {
    await this.stop('SIGKILL');
    rmSync(this.root, { recursive: true, force: true });
  }
}
