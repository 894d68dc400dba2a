// Reads the console with node-postgres: simple queries, and prepared ones under names.
import assert from 'node:assert/strict'
import pg from 'pg'

const conn = new pg.Client()
await conn.connect()
for (const turn of [1, 2]) {
  for (const table of process.argv.slice(2)) {
    const simple = await conn.query(`show ${table}`)
    const named = await conn.query({ name: table, text: `show ${table}`, values: [] })
    assert.equal(named.rows.length, simple.rows.length)
    assert.deepEqual(named.fields.map((field) => field.name), simple.fields.map((f) => f.name))
    console.log(table, named.rows.length)
  }
}
await conn.query('begin')
await conn.query('commit')
await conn.query('pause $1', ['postgres'])
await conn.query('resume $1', ['postgres'])
await assert.rejects(conn.query({ text: 'show nothing', values: [] }), { code: '08P01' })
assert.equal((await conn.query('select 1')).rows.length, 1)
await conn.end()
console.log('end 1')
