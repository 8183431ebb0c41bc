'use strict'
// How a check is named, run and reported. A check is an async function; it fails by any exception.

const { Client } = require('pg')

// A check that hangs must fail under its own name, before the harness gives up on the whole program.
const CHECK_MS_MAX = 120000

const opened = []

/** A connection from the PG* environment. It is closed with its check, however that ends. */
async function connect(options = {}) {
  const client = new Client({ application_name: 'drv_node', connectionTimeoutMillis: 60000, ...options })
  // A connection that breaks while nothing runs on it would end the process.
  client.on('error', () => {})
  await client.connect()
  opened.push(client)
  return client
}

async function fails(sqlstate, promise) {
  let error = null
  try {
    await promise
  } catch (caught) {
    error = caught
  }
  if (error === null) throw new Error(`no error, wanted ${sqlstate}`)
  if (error.code !== sqlstate) throw new Error(`wanted ${sqlstate}, got ${error.code}: ${error.message}`)
  return error
}

async function value(client, text, values) {
  const { rows } = await client.query({ text, values, rowMode: 'array' })
  return rows[0][0]
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function run(checks) {
  let failed = false
  for (const check of checks) {
    if (process.argv[2] && process.argv[2] !== check.name) continue
    const began = Date.now()
    let timer
    try {
      const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`not done after ${CHECK_MS_MAX} ms`)), CHECK_MS_MAX)
      })
      await Promise.race([check(), late])
      console.log(`ok ${check.name}`)
    } catch (error) {
      failed = true
      const at = (error.stack || '').split('\n').find((line) => line.includes('checks.js')) || ''
      console.log(`not ok ${check.name}: ${error.message} ${at.trim()}`.replaceAll('\n', ' ').slice(0, 600))
    }
    clearTimeout(timer)
    const closing = Promise.all(opened.splice(0).map((client) => client.end().catch(() => {})))
    await Promise.race([closing, pause(5000)])
    if (process.env.DRIVERS_TIMES) console.error(`# ${check.name} ${Date.now() - began} ms`)
  }
  process.exit(failed ? 1 : 0)
}

module.exports = { connect, fails, value, pause, run }
