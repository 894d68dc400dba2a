// node-postgres with its defaults: unnamed statements, named ones on request, portals by pg-cursor
// and pg-query-stream, COPY streams, its pool. The server is told by PGHOST, PGPORT, PGUSER,
// PGPASSWORD and PGDATABASE. Prints one line "behaviour count" for each that went as it must.
import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import pg from 'pg'
import Cursor from 'pg-cursor'
import QueryStream from 'pg-query-stream'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'

const CLIENTS = 8
const conns = []
const same = assert.deepEqual
const done = (behaviour, count) => console.log(behaviour, count)
const range = (n) => [...Array(n).keys()]
const onAll = (work) => Promise.all(conns.map((conn, index) => work(index, conn)))
const refused = (running, code) =>
  assert.rejects(running, (error) => { same(error.code, code, error.message); return true })

async function connect(index, options = {}) {
  const enableChannelBinding = process.env.PGCHANNELBINDING === 'require'
  const conn = new pg.Client({
    application_name: `pg ${index}`, enableChannelBinding, ...options
  })
  conn.on('error', () => {})
  await conn.connect()
  return conn
}

/** The first column of the first row. */
async function one(conn, text, values, name) {
  const { rows } = await conn.query({ text, values, name, rowMode: 'array' })
  return rows[0][0]
}

async function connects() {
  conns.push(...await Promise.all(range(CLIENTS).map((index) => connect(index))))
  await onAll(async (index, conn) =>
    same(await one(conn, "select current_setting('application_name')"), `pg ${index}`))
  done('connect', CLIENTS)
}

async function unnamed() {
  await onAll(async (index, conn) => {
    for (const turn of range(50)) {
      same(await one(conn, 'select $1::text', [`${index}.${turn}`]), `${index}.${turn}`)
      same(await one(conn, `select $1::int + ${index}`, [turn]), index + turn)
    }
    // Queries queue in the driver.
    const queued = range(20).map((turn) => one(conn, 'select $1::text', [`${index} ${turn}`]))
    same(await Promise.all(queued), range(20).map((turn) => `${index} ${turn}`))
  })
  done('unnamed statements', CLIENTS * 50)
}

async function named() {
  await onAll(async (index, conn) => {
    for (const turn of range(30)) {
      same(await one(conn, "select $1::text || 'shared'", [`${index}.${turn}`], 'shared'),
        `${index}.${turn}shared`)
      same(await one(conn, `select $1::text || 'own ${index}'`, [`${turn}`], 'own'),
        `${turn}own ${index}`)
    }
    for (const turn of range(60)) {
      const name = `many_${turn}_`.padEnd(63, 'x')
      same(await one(conn, `select $1::int + ${turn}`, [index], name), index + turn)
    }
    await refused(one(conn, 'select nonsense', [], 'bad'), '42703')
    await refused(one(conn, 'select nonsense', [], 'bad'), '42703')
    await conn.query('deallocate own')
    await refused(one(conn, `select $1::text || 'own ${index}'`, ['x'], 'own'), '26000')
    await conn.query('discard all')
    await refused(one(conn, "select $1::text || 'shared'", ['x'], 'shared'), '26000')
    same(await one(conn, "select $1::text || 'new'", ['x'], 'new'), 'xnew')
  })
  done('named statements', CLIENTS * 30)
}

async function transactions() {
  await conns[0].query('drop table if exists pg_rows_; create table pg_rows_ (owner int, body text)')
  const insert = 'insert into pg_rows_ values ($1, $2)'
  await onAll(async (index, conn) => {
    for (const turn of range(6)) {
      await conn.query('begin')
      await conn.query(insert, [index, `kept ${turn}`])
      await conn.query('savepoint s')
      await conn.query(insert, [index, 'undone'])
      await refused(conn.query('select 1 / $1::int', [0]), '22012')
      await refused(conn.query(insert, [index, 'failed']), '25P02')
      await conn.query('rollback to s')
      await conn.query(`set local work_mem = '${index + 1}MB'`)
      same(await one(conn, 'show work_mem'), `${index + 1}MB`)
      await conn.query('commit')
      same(await one(conn, 'show work_mem'), '4MB')
      await conn.query('begin')
      await conn.query({ name: 'insert', text: insert, values: [index, 'rolled back'] })
      await conn.query('rollback')
      const several = await conn.query(`select ${index} as a; select ${turn} as b`)
      same(several.map((result) => Object.values(result.rows[0])[0]), [index, turn])
    }
    same(await one(conn, 'select count(*)::int from pg_rows_ where owner = $1', [index]), 6)
  })
  done('transactions', CLIENTS * 6)
}

async function portals() {
  await onAll(async (index, conn) => {
    for (const inTransaction of [true, false, true]) {
      if (inTransaction) await conn.query('begin')
      const text = 'select $1::int * 1000 + i as n from generate_series(1, 100) i'
      const cursor = conn.query(new Cursor(text, [index]))
      for (let from = 1; from <= 100; from += 20) {
        const rows = await cursor.read(20)
        same(rows.map((row) => row.n), range(20).map((i) => index * 1000 + from + i))
      }
      same(await cursor.read(20), [])
      await cursor.close()
      const given_up = conn.query(new Cursor(text, [index]))
      same((await given_up.read(3)).length, 3)
      await given_up.close()
      let n = 0
      for await (const row of conn.query(new QueryStream(text, [index], { batchSize: 7 }))) {
        same(row.n, index * 1000 + ++n)
      }
      same(n, 100)
      if (inTransaction) await conn.query('commit')
      same(await one(conn, 'select $1::int', [index]), index)
    }
  })
  done('portals', CLIENTS * 3)
}

async function copies() {
  await conns[0].query(`drop table if exists pg_copied;
    create table pg_copied (owner int, n int, body text, primary key (owner, n))`)
  await onAll(async (index, conn) => {
    const lines = range(300).map((n) => `${index}\t${n}\t${'x'.repeat(200)}\n`)
    const copy = () => conn.query(copyFrom('copy pg_copied from stdin'))
    await pipeline(Readable.from(lines), copy())
    let out = ''
    const text = `copy (select * from pg_copied where owner = ${index} order by n) to stdout`
    for await (const chunk of conn.query(copyTo(text))) out += chunk
    same(out, lines.join(''))
    await refused(pipeline(Readable.from(lines), copy()), '23505')
    same(await one(conn, 'select count(*)::int from pg_copied where owner = $1', [index]), 300)
  })
  done('copies', CLIENTS)
}

async function timeouts() {
  let stopped = false
  const beside = [4, 5, 6, 7].map(async (index) => {
    for (let turn = 0; !stopped; turn++) {
      same(await one(conns[index], 'select $1::text', [`${index}.${turn}`]), `${index}.${turn}`)
    }
  })
  for (const index of range(4)) {
    // node-postgres sends a cancel request on a second connection.
    const mark = `select pg_sleep(60) /* pg ${index} */`
    const asleep = refused(conns[index].query(mark), '57014')
    const active = "select count(*)::int from pg_stat_activity where state = 'active' and query = $1"
    while (await one(conns[(index + 1) % 4], active, [mark]) === 0);
    const canceller = new pg.Client()
    await new Promise((resolve) => {
      const { connection } = canceller
      connection.on('connect', () =>
        connection.cancel(conns[index].processID, conns[index].secretKey))
      connection.on('end', resolve)
      connection.on('error', resolve)
      connection.connect(conns[index].port, conns[index].host)
    })
    await asleep
    same(await one(conns[index], 'select $1::int', [index]), index)
  }
  stopped = true
  await Promise.all(beside)
  done('cancels', 4)
}

async function large() {
  await onAll(async (index, conn) => {
    const text = String.fromCharCode(97 + index).repeat(1 << 20)
    for (const name of [undefined, 'large']) {
      assert(await one(conn, 'select $1::text', [text], name) === text, '1 MB came back changed')
    }
  })
  done('1 MB parameters', CLIENTS * 2)
}

async function notices() {
  await onAll(async (index, conn) => {
    const heard = []
    const hear = (notice) => heard.push(notice.message)
    conn.on('notice', hear)
    for (const turn of range(5)) {
      await conn.query(`do $$begin raise notice 'from ${index}.${turn}'; end$$`)
    }
    conn.off('notice', hear)
    same(heard, range(5).map((turn) => `from ${index}.${turn}`))
  })
  done('notices', CLIENTS * 5)
}

async function changedTypes() {
  await conns[0].query('drop table if exists pg_shape; create table pg_shape as select 1 as c1')
  for (const columns of [1, 2, 3, 4]) {
    await onAll(async (index, conn) => {
      for (const turn of range(4)) {
        const { rows } = await conn.query('select *, $1::int as n from pg_shape', [turn])
        same(Object.keys(rows[0]).length, columns + 1)
        // A named statement is its user's to name anew; its text is the same.
        const text = 'select *, 1 as named from pg_shape'
        const again = await conn.query({ name: `shape${columns}`, text, values: [] })
        same(Object.keys(again.rows[0]).length, columns + 1)
      }
    })
    await conns[columns].query(`alter table pg_shape add c${columns + 1} int`)
  }
  done('changed result types', CLIENTS * 4)
}

async function pool() {
  const own = new pg.Pool({ max: 10 })
  await Promise.all(range(24).map(async (index) => {
    for (const turn of range(20)) {
      same(await one(own, 'select $1::int', [index * 100 + turn]), index * 100 + turn)
      const conn = await own.connect()
      await conn.query('begin')
      same(await one(conn, 'select $1::int + 1', [index * 100 + turn], 'pooled'),
        index * 100 + turn + 1)
      await conn.query('commit')
      conn.release(turn % 10 === 9)
    }
  }))
  await own.end()
  done('pool', 24 * 20)
}

/** node-pg-migrate's lock, taken by replicas that start at once. */
async function migrations() {
  const lock = '7241865325823964'
  let inside = 0
  await onAll(async (index, conn) => {
    for (const turn of range(3)) {
      while (!await one(conn, `select pg_try_advisory_lock(${lock}) as "lockObtained"`));
      same(++inside, 1)
      same(await one(conn, 'select $1::int', [turn]), turn)
      inside--
      same(await one(conn, `select pg_advisory_unlock(${lock}) as "lockReleased"`), true)
    }
  })
  done('advisory locks', CLIENTS * 3)
}

/** Heard as Graphile Worker hears of jobs. */
async function notifications() {
  await onAll(async (index, conn) => {
    const listener = await connect(index)
    const heard = []
    const all = new Promise((resolve) => listener.on('notification', ({ channel, payload }) => {
      if (heard.push(`${channel} ${payload}`) === 5) resolve()
    }))
    await listener.query(`LISTEN "jobs:insert${index}"`)
    for (const turn of range(5)) {
      await conn.query('select pg_notify($1, $2)', [`jobs:insert${index}`, `${turn}`])
    }
    await all
    same(heard, range(5).map((turn) => `jobs:insert${index} ${turn}`))
    await listener.end()
  })
  done('notifications', CLIENTS * 5)
}

async function reconnects() {
  await Promise.all(range(CLIENTS).map(async (index) => {
    for (const turn of range(12)) {
      const conn = await connect(index)
      same(await one(conn, 'select $1::int', [turn]), turn)
      if (turn % 2) await conn.query("begin; insert into pg_rows_ values (-1, 'left behind')")
      if (turn % 4 === 3) conn.connection.stream.destroy()
      else await conn.end()
    }
  }))
  same(await one(conns[0], 'select count(*)::int from pg_rows_ where owner = -1'), 0)
  done('reconnects', CLIENTS * 12)
}

for (const behaviour of [connects, unnamed, named, transactions, portals, copies, timeouts, large,
  notices, changedTypes, pool, migrations, notifications, reconnects]) {
  await behaviour()
}
await onAll((_, conn) => conn.end())
done('end', 1)
