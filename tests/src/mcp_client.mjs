// A client of the Model Context Protocol made of the official SDK, told what to do by lines of JSON on stdin; what
// happens to it are lines of JSON on stdout. Arguments: the SDK's directory, then the server's command line.
import { createInterface } from 'node:readline';

const [sdk, command, ...args] = process.argv.slice(2);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);

const say = (event) => process.stdout.write(JSON.stringify(event) + '\n');
const client = new Client({ name: 'legion-tests', version: '1.2.3' });
const calls = new Map();
client.onclose = () => say({ closed: true });
client.onerror = (error) => say({ problem: String(error) });

function call({ id, name, arguments: given, timeout }) {
  const abort = new AbortController();
  calls.set(id, abort);
  const options = {
    signal: abort.signal,
    timeout: timeout ?? 60000,
    resetTimeoutOnProgress: true,
    onprogress: (progress) => say({ id, progress }),
  };
  client.callTool({ name, arguments: given }, undefined, options).then(
    (result) => say({ id, result }),
    (error) => say({ id, error: String(error) }),
  );
}

try {
  await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
  const server = client.getServerVersion();
  const { tools } = await client.listTools();
  say({ ready: { server, instructions: client.getInstructions(), tools } });
} catch (error) {
  say({ refused: String(error) });
  process.exit(1);
}
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  if (order.call) call(order.call);
  if (order.abort) calls.get(order.abort).abort('no longer wanted');
  if (order.notify) await client.notification(order.notify);
}
await client.close();
