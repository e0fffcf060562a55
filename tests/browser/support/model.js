// The mock model as a process: what it says, where it waits, and what it was asked.

import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

export class Model {
  // Starts it; `directory` takes its empty script.
  static async start(directory) {
    const script = `${directory}/script.json`;
    writeFileSync(script, JSON.stringify({ steps: [] }));
    const child = spawn(process.env.CONJURE_MOCK_LLM, ['--script', script, '--commands'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const model = new Model(child);
    model.url = await model.line();
    return model;
  }

  constructor(child) {
    this.child = child;
    this.gates = 0;
    this.turn = Promise.resolve();
    this.lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }

  async line() {
    const { value, done } = await this.lines.next();
    if (done) throw new Error('the mock model ended');
    return value;
  }

  // One command and its answer; commands never overtake each other.
  command(command) {
    const answer = this.turn.then(async () => {
      this.child.stdin.write(`${JSON.stringify(command)}\n`);
      const answer = JSON.parse(await this.line());
      if (answer.error) throw new Error(`${JSON.stringify(command)}: ${answer.error}`);
      return answer;
    });
    this.turn = answer.catch(() => {});
    return answer;
  }

  // The next answer: a text. With `when`, only to what has these words in its last message.
  says(text, { when, hold, delay, thinking, delta } = {}) {
    const content = [{ type: 'text', text }];
    if (thinking) content.unshift({ type: 'thinking', thinking });
    return this.step({ content, ...(delta ? { text_delta: delta } : {}) }, { when, hold, delay });
  }

  // The next answer: a call of a tool, after words.
  calls(id, name, input, { text, when, hold } = {}) {
    const content = [{ type: 'tool_use', id, name, input }];
    if (text) content.unshift({ type: 'text', text });
    return this.step({ content }, { when, hold });
  }

  step(message, { when, hold, delay } = {}) {
    const delivery = {};
    if (hold) delivery.holds = [{ at: { event: hold.event ?? 4 }, token: hold.gate }];
    if (delay) delivery.delay_ms = delay;
    const step = { message, delivery };
    if (when) step.when = { text: when };
    return this.command({ steps: [step] });
  }

  fails(status) {
    return this.command({ steps: [{ error: { status } }] });
  }

  reached(gate) {
    return this.command({ reached: gate });
  }

  release(gate) {
    return this.command({ release: gate });
  }

  // What it was asked to answer, without the lists of models.
  async requests() {
    const { requests } = await this.command({ requests: 0 });
    return requests.filter(({ body }) => body !== null);
  }

  stop() {
    this.child.kill('SIGKILL');
  }
}
