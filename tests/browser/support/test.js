// What every test of the page begins with: a server with a model, and a browser that was let in by
// the one-time link. A test fails on any error of the console, error of the page, report of the
// Content-Security-Policy, and request to elsewhere.

import { expect, test as base } from '@playwright/test';

import { Model } from './model.js';
import { Server } from './server.js';

export { expect };

export const test = base.extend({
  // Which plugins the server begins with.
  plugins: [[process.env.CONJURE_PLUGIN_LOCAL], { option: true }],

  // What it knows of models, such as prices: the text of `models.toml`.
  models: ['', { option: true }],

  server: async ({ plugins, models }, use, info) => {
    const server = Server.make();
    for (const plugin of plugins) server.plugin(plugin);
    if (models) server.knows(models);
    await server.start();
    await use(server);
    if (info.status !== info.expectedStatus) console.log(server.said);
    await server.remove();
  },

  baseURL: async ({ server }, use) => {
    await use(server.url);
  },

  model: async ({ server }, use) => {
    const model = await Model.start(server.root);
    await use(model);
    model.stop();
  },

  // What of the console a test expects: it adds regular expressions.
  expected: async ({}, use) => {
    await use([]);
  },

  // Watches all pages of a browser context: those that there are, and those that come.
  watch: async ({ server, expected }, use) => {
    const wrong = [];
    const say = (text) => {
      if (!expected.some((known) => known.test(text))) wrong.push(text);
    };
    await use(async (context) => {
      context.on('console', (said) => {
        if (['error', 'warning'].includes(said.type())) {
          say(`console: ${said.text()} (${said.location().url})`);
        }
      });
      context.on('weberror', (failed) => say(`page: ${failed.error().stack}`));
      context.on('request', (request) => {
        const url = request.url();
        if (!url.startsWith(`${server.url}/`) && !/^(data|blob|about):/.test(url)) {
          say(`request to elsewhere: ${url}`);
        }
      });
      await context.addInitScript(() => {
        addEventListener('securitypolicyviolation', (event) => {
          console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
        });
      });
    });
    expect(wrong).toEqual([]);
  },

  page: async ({ page, context, server, watch }, use) => {
    await watch(context);
    await page.goto(await server.link());
    await use(page);
    // What is under way when a test ends is no error.
    for (const one of context.pages()) await one.close();
  },

  // Opens a page in a browser context of its own, with options such as `javaScriptEnabled`, and watches
  // it. Nobody has let it in yet. Without script it is watched for the console and for requests.
  visitor: async ({ browser, watch }, use) => {
    const contexts = [];
    await use(async (options = {}) => {
      const context = await browser.newContext(options);
      contexts.push(context);
      await watch(context);
      return context.newPage();
    });
    for (const context of contexts) await context.close();
  },

  // A saved auth for each wire, all at the mock.
  auths: async ({ server, model }, use) => {
    const auths = {};
    for (const [name, provider] of [['work', 'anthropic'], ['open', 'openai']]) {
      auths[name] = await server.api('POST', '/auths', {
        name, provider, kind: 'api_key', secret: 'a-key-of-nobody', base_url: model.url,
      });
    }
    await use(auths);
  },

  // Makes a session; `more` wins over what it is otherwise made with.
  session: async ({ server, auths }, use) => {
    await use((name, more = {}) => server.api('POST', '/sessions', {
      name, auth: auths.work.id, model: 'claude-mock', working_dir: server.work,
      tools: { backend: [{ kind: 'local' }], policy: { allow: ['*'] } }, ...more,
    }));
  },
});
