// How the tests of the page run: two at a time, each with a server, a model and a browser context of
// its own. `cargo xtask browser` says by variables where the programs are.

import { defineConfig } from '@playwright/test';

const figures = Boolean(process.env.CONJURE_BROWSER_FIGURES);

export default defineConfig({
  testDir: '.',
  testMatch: figures ? 'figures.js' : 'specs/*.spec.js',
  outputDir: `${process.env.CONJURE_BROWSER_OUTPUT}/results`,
  workers: figures ? 1 : 2,
  fullyParallel: true,
  forbidOnly: Boolean(process.env.CI),
  // What fails once on a busy machine is tried again there, and told as flaky. A figure that is beyond its
  // limit is so, and is told at once.
  retries: process.env.CI && !figures ? 2 : 0,
  timeout: 60_000,
  globalTimeout: 25 * 60_000,
  expect: { timeout: 10_000 },
  reporter: [['list']],
  use: {
    browserName: 'chromium',
    launchOptions: {
      executablePath: process.env.CONJURE_CHROMIUM || '/usr/bin/chromium',
      // Chromium keeps to no sandbox of its own as root; it sees this machine's pages only.
      args: process.getuid() === 0 ? ['--no-sandbox'] : [],
    },
    actionTimeout: 10_000,
    // Tracing makes every test slower: one that failed is traced when it is tried again.
    trace: 'on-first-retry',
    locale: 'en-GB',
    timezoneId: 'UTC',
    reducedMotion: 'reduce',
  },
});
