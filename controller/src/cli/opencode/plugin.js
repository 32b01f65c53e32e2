// Legion's plugin for OpenCode: takes the places of the built-in tools and hands each call to the controller.
//
// It imports nothing, touches no file and runs no command. The static configuration denies every tool; they are allowed
// here, once the controller has answered, so without this plugin, or without the controller, there are none.

const { LEGION_TOOLS_SOCKET: PATH, LEGION_TOOLS_SECRET: SECRET } = process.env
// What OpenCode starts need not know them.
delete process.env.LEGION_TOOLS_SOCKET
delete process.env.LEGION_TOOLS_SECRET

const net = process.getBuiltinModule("net")

// Milliseconds the controller has to greet us. Calls have none: their time-outs are those of the tools.
const GREETING = 10_000

// Characters of a running command's output that are shown.
const SHOWN = 30_000

// OpenCode's own tools that reach the host: all of them are replaced, or nothing is allowed.
const REPLACED = ["apply_patch", "bash", "edit", "glob", "grep", "read", "write"]

// OpenCode's own tools that do nothing by themselves.
const HARMLESS = ["task", "todowrite", "todoread", "question"]

// Agents that look and do not change.
const READERS = ["plan", "explore"]

const open = new Set()

// One request, on a connection of its own: lines of JSON. Closing it cancels.
function ask(message, { signal, timeout, progress } = {}) {
  return new Promise((resolve, reject) => {
    if (!PATH || !SECRET || !net) return reject(new Error("OpenCode was not started by legion-controller opencode"))
    const socket = net.connect(PATH)
    open.add(socket)
    let rest = ""
    const end = (settle, value) => {
      clearTimeout(timer)
      signal?.removeEventListener("abort", abort)
      open.delete(socket)
      socket.destroy()
      settle(value)
    }
    const fail = (why) => end(reject, new Error(why))
    const abort = () => fail("cancelled")
    const timer = timeout && setTimeout(() => fail(`Legion's controller did not answer within ${timeout / 1000} s`), timeout)
    const take = (line) => {
      const { progress: text, answer, error } = JSON.parse(line)
      if (answer !== undefined) end(resolve, answer)
      else if (error !== undefined) fail(error)
      else progress?.(text)
    }
    socket.setEncoding("utf8")
    socket.on("connect", () => socket.write(JSON.stringify({ secret: SECRET, ...message }) + "\n"))
    socket.on("data", (text) => {
      const lines = (rest + text).split("\n")
      rest = lines.pop()
      try {
        lines.forEach(take)
      } catch (error) {
        fail(`Legion's controller sent what makes no sense: ${error.message}`)
      }
    })
    socket.on("error", (error) => fail(`Legion's controller cannot be reached, so nothing was done: ${error.message}`))
    socket.on("close", () => fail("Legion's controller has ended; whether the call was carried out is not known"))
    signal?.addEventListener("abort", abort)
    if (signal?.aborted) abort()
  })
}

function tool({ name, description, schema }) {
  const execute = async (args, context) => {
    let output = ""
    const progress = (text) => {
      output = (output + text).slice(-SHOWN)
      context.metadata({ title: args.description ?? args.command, metadata: { output, description: args.description } })
    }
    const call = { tool: name, arguments: args, id: context.callID }
    const answer = await ask({ call }, { signal: context.abort, progress })
    const attachments = answer.attachments.map(({ mime, base64 }) => ({ type: "file", mime, url: `data:${mime};base64,${base64}` }))
    const shown = name === "bash" ? { output: answer.output.slice(-SHOWN), description: args.description } : {}
    return { title: answer.title, output: answer.output, metadata: { ...answer.metadata, ...shown }, attachments }
  }
  return { description, args: schema.properties, execute }
}

export const Legion = async () => {
  const { tools } = await ask({ hello: true }, { timeout: GREETING })
  const schemas = new Map(tools.map(({ name, schema }) => [name, schema]))
  const missing = REPLACED.filter((name) => !schemas.has(name))
  if (missing.length > 0) throw new Error(`Legion has no tools for ${missing.join(", ")}`)
  const allowed = [...schemas.keys(), ...HARMLESS].map((name) => [name, "allow"])
  return {
    tool: Object.fromEntries(tools.map((described) => [described.name, tool(described)])),
    // Without it every argument counts as required.
    "tool.definition": async ({ toolID }, definition) => {
      if (schemas.has(toolID)) definition.jsonSchema = schemas.get(toolID)
    },
    config: async (config) => {
      config.permission = { "*": "deny", ...Object.fromEntries(allowed) }
      config.agent ??= {}
      for (const name of READERS) config.agent[name] = { ...config.agent[name], permission: { edit: "deny" } }
    },
    dispose: async () => open.forEach((socket) => socket.destroy()),
  }
}
