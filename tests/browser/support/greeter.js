// A plugin that is a program, as one file to hand on: two builds of it that ask for other permissions and
// have other tools.

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const SDK = join(__dirname, '../../../skill-sdk/python/conjure_plugin.py');

// What each build may ask for, and its tools.
const BUILDS = {
  '0.1.0': { permissions: "http=['lamp.example']", tools: { greet: 'Greets somebody.', wave: 'Waves.' } },
  '0.2.0': { permissions: "secrets=['LAMP_KEY']", tools: { greet: 'Greets somebody by name.', bow: 'Bows.' } },
};

// Makes the bundle of a build. Its path.
export function greeter(server, version) {
  const { permissions, tools } = BUILDS[version];
  const folder = `${server.root}/tmp/greeter-${version}`;
  mkdirSync(folder, { recursive: true });
  copyFileSync(SDK, `${folder}/conjure_plugin.py`);
  writeFileSync(`${folder}/greeter.plugin.toml`, `plugin = 1
protocol = 1
kind = "skill"
name = "greeter"
version = "${version}"
command = ["python3", "greeter.py"]
files = ["greeter.py", "conjure_plugin.py"]
`);
  const functions = Object.entries(tools).map(([name, words]) => `
@skill.tool(read_only=True)
def ${name}(call: Call, name: str) -> str:
    """${words}"""
    return f"${name}: {name}"
`);
  writeFileSync(`${folder}/greeter.py`, `from conjure_plugin import Call, Skill

skill = Skill("greeter", "Greets people", version="${version}")
skill.permissions(${permissions})
${functions.join('')}
if __name__ == "__main__":
    skill.run()
`);
  const bundle = `${server.root}/tmp/greeter-${version}.plugin`;
  const files = ['greeter.plugin.toml', 'greeter.py', 'conjure_plugin.py'];
  execFileSync('python3', ['-m', 'zipfile', '-c', bundle, ...files], { cwd: folder });
  return bundle;
}
