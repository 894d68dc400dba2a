// postgres.js with its defaults: every statement prepared under a random name, pipelined, its own
// pool, and another try when a cached plan is stale. The server is told by PGHOST, PGPORT, PGUSER,
// PGPASSWORD and PGDATABASE. Prints one line "behaviour count" for each that went as it must.
import assert from 'node:assert/strict'
import postgres from 'postgres'

const CLIENTS = 8
const same = assert.deepEqual
const done = (behaviour, count) => console.log(behaviour, count)
const range = (n) => [...Array(n).keys()]
const open = (index, options = {}) => postgres({
  max: 1, onnotice: () => {}, connection: { application_name: `postgres.js ${index}` },
  ssl: process.env.PGSSLMODE ?? false, ...options
})
const conns = range(CLIENTS).map((index) => open(index))
const onAll = (work) => Promise.all(conns.map((sql, index) => work(index, sql)))
const refused = (running, code) =>
  assert.rejects(running, (error) => { same(error.code, code, error.message); return true })

async function connects() {
  await onAll(async (index, sql) => {
    const [{ name }] = await sql`select current_setting('application_name') as name`
    same(name, `postgres.js ${index}`)
  })
  done('connect', CLIENTS)
}

async function repeats() {
  await onAll(async (index, sql) => {
    for (const turn of range(40)) {
      const value = `${index}.${turn}`
      same((await sql`select ${value}::text || '!' as a`)[0].a, value + '!')
      same((await sql.unsafe(`select $1::text || ' of ${index}' as a`, [value]))[0].a,
        `${value} of ${index}`)
    }
    for (const turn of range(100)) { // many names
      const text = `select $1::int + ${turn} as a`
      same((await sql.unsafe(text, [index], { prepare: true }))[0].a, index + turn)
    }
    // All at once on one connection: postgres.js pipelines them.
    const rows = await Promise.all(range(100).map((turn) =>
      sql`select ${`${index}.${turn}`}::text as a`))
    same(rows.map(([row]) => row.a), range(100).map((turn) => `${index}.${turn}`))
    // One of them fails.
    const settled = await Promise.allSettled(range(20).map((turn) =>
      sql`select 100 / ${turn - 10}::int as a`))
    same(settled.map((one) => one.value?.[0].a ?? one.reason.code),
      range(20).map((turn) => turn === 10 ? '22012' : Math.trunc(100 / (turn - 10))))
    same((await sql.unsafe('select 1 as a; select 2 as a')).map(([row]) => row.a), [1, 2])
    same((await sql`select ${index}::int as a`.describe()).types, [23])
  })
  done('prepared statements', CLIENTS * 40)
}

async function transactions() {
  await conns[0].unsafe('drop table if exists postgresjs_rows')
  await conns[0].unsafe('create table postgresjs_rows (owner int, body text)')
  await onAll(async (index, sql) => {
    for (const turn of range(6)) {
      await sql.begin(async (sql) => {
        await sql`insert into postgresjs_rows values (${index}, ${'kept ' + turn})`
        await refused(sql.savepoint(async (sql) => {
          await sql`insert into postgresjs_rows values (${index}, 'undone')`
          await sql`select 1 / ${0}::int`
        }), '22012')
        await sql.unsafe(`set local work_mem = '${index + 1}MB'`)
        same((await sql`show work_mem`)[0].work_mem, `${index + 1}MB`)
      })
      same((await sql`show work_mem`)[0].work_mem, '4MB')
      await refused(sql.begin(async (sql) => {
        await sql`insert into postgresjs_rows values (${index}, 'failed')`
        await sql`select nonsense`
      }), '42703')
      const rows = await sql.begin('isolation level serializable', (sql) =>
        range(5).map((i) => sql`select ${index * 10 + i}::int as a`))
      same(rows.map(([row]) => row.a), range(5).map((i) => index * 10 + i))
    }
    same((await sql`select count(*)::int as n from postgresjs_rows where owner = ${index}`)[0].n, 6)
  })
  done('transactions', CLIENTS * 6)
}

async function portals() {
  await onAll(async (index, sql) => {
    const query = (sql) => sql`select ${index}::int * 1000 + i as n from generate_series(1, 100) i`
    for (const inTransaction of [false, true]) {
      const read = async (sql) => {
        let n = 0
        await query(sql).cursor(9, (rows) => rows.forEach((row) => same(row.n, index * 1000 + ++n)))
        same(n, 100)
        for await (const rows of query(sql).cursor(10)) {
          same(rows[0].n, index * 1000 + 1)
          break
        }
        n = 0
        await query(sql).forEach((row) => same(row.n, index * 1000 + ++n))
        same(n, 100)
      }
      await (inTransaction ? sql.begin(read) : read(sql))
      same((await sql`select ${index}::int as a`)[0].a, index)
    }
  })
  done('portals', CLIENTS * 2)
}

async function cancels() {
  let stopped = false
  const beside = [4, 5, 6].map(async (index) => {
    for (let turn = 0; !stopped; turn++) {
      same((await conns[index]`select ${`${index}.${turn}`}::text as a`)[0].a, `${index}.${turn}`)
    }
  })
  for (const index of range(4)) {
    const mark = `select pg_sleep(60) /* postgres.js ${index} */`
    const query = conns[index].unsafe(mark)
    const asleep = refused(query, '57014')
    while (!(await conns[7]`select 1 from pg_stat_activity
      where state = 'active' and query = ${mark}`).length);
    query.cancel()
    await asleep
    same((await conns[index]`select ${index}::int as a`)[0].a, index)
  }
  stopped = true
  await Promise.all(beside)
  done('cancels', 4)
}

async function large() {
  await onAll(async (index, sql) => {
    const text = String.fromCharCode(97 + index).repeat(1 << 20)
    for (const _ of range(2)) {
      assert((await sql`select ${text}::text as a`)[0].a === text, '1 MB came back changed')
    }
  })
  done('1 MB parameters', CLIENTS * 2)
}

async function notices() {
  await Promise.all(range(CLIENTS).map(async (index) => {
    const heard = []
    const sql = open(index, { onnotice: (notice) => heard.push(notice.message) })
    for (const turn of range(5)) {
      await sql.unsafe(`do $$begin raise notice 'from ${index}.${turn}'; end$$`)
    }
    await sql.end()
    same(heard, range(5).map((turn) => `from ${index}.${turn}`))
  }))
  done('notices', CLIENTS * 5)
}

async function changedTypes() {
  await conns[0].unsafe('drop table if exists postgresjs_shape')
  await conns[0].unsafe('create table postgresjs_shape as select 1 as c1')
  for (const columns of [1, 2, 3, 4]) {
    await onAll(async (_, sql) => {
      for (const _ of range(4)) {
        const [row] = await sql`select * from postgresjs_shape`
        same(Object.keys(row).length, columns)
      }
    })
    await conns[columns].unsafe(`alter table postgresjs_shape add c${columns + 1} int`)
  }
  done('changed result types', CLIENTS * 4)
}

async function pool() {
  const sql = postgres({ max: 10, onnotice: () => {}, ssl: process.env.PGSSLMODE ?? false })
  await Promise.all(range(24).map(async (index) => {
    for (const turn of range(20)) {
      const n = index * 100 + turn
      same((await sql`select ${n}::int as a`)[0].a, n)
      same((await sql.begin((sql) => sql`select ${n}::int + 1 as a`))[0].a, n + 1)
      // Arrays make postgres.js look types up in the catalogue.
      same((await sql`select ${sql.array([n, 2], 1007)} as a, ${sql.json({ n })}::jsonb as j`)[0],
        { a: [n, 2], j: { n } })
    }
    const own = await sql.reserve()
    same((await own`select ${index}::int as a`)[0].a, index)
    own.release()
  }))
  await sql.end()
  done('pool', 24 * 20)
}

async function resets() {
  await onAll(async (index, sql) => {
    same((await sql`select ${index}::int + 1 as a`)[0].a, index + 1)
    await sql.unsafe('discard all')
    // postgres.js meets 26000 and prepares anew by itself.
    same((await sql`select ${index}::int + 1 as a`)[0].a, index + 1)
    same((await sql`select ${index}::int + 2 as a`)[0].a, index + 2)
  })
  done('reset by SQL', CLIENTS)
}

async function reconnects() {
  await Promise.all(range(CLIENTS).map(async (index) => {
    for (const turn of range(12)) {
      const sql = open(index)
      same((await sql`select ${turn}::int as a`)[0].a, turn)
      await sql.end()
    }
  }))
  done('reconnects', CLIENTS * 12)
}

for (const behaviour of [connects, repeats, transactions, portals, cancels, large, notices,
  changedTypes, pool, resets, reconnects]) {
  await behaviour()
}
await onAll((_, sql) => sql.end())
done('end', 1)
