# frozen_string_literal: true

# ruby-pg with its defaults: queries, parameters in text and binary, named statements, COPY, cursors,
# single rows, pipelines, notifications, cancels, and libpq's calls that do not wait.
#
# The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE, which libpq reads. Prints what
# each connection got, in lines that are the same in each run.

require 'pg'

CLIENTS = 8
STATE = <<~SQL
  select current_setting('application_name'), current_setting('work_mem'), current_setting('TimeZone'),
    current_setting('search_path'), current_setting('default_transaction_read_only'), current_user::text,
    coalesce(current_setting('app.tenant', true), ''), to_regclass('pg_temp.numbers')::text
SQL

# A connection of ours.
def connect(index)
  PG.connect(application_name: "ruby #{index}")
end

# Runs a block with each connection, all at once, and prints what each gives.
def on_all(behaviour)
  threads = CONNS.each_with_index.map do |conn, index|
    Thread.new do
      Thread.current.report_on_exception = false
      Thread.current.abort_on_exception = true
      yield conn, index
    end
  end
  threads.map(&:value).each_with_index do |answers, index|
    answers.each { |answer| puts "#{behaviour} #{index} #{answer.inspect}" }
  end
end

# Runs what must fail, and gives SQLSTATE and words.
def refused
  yield
  'not refused'
rescue PG::Error => e
  [e.class, e.result&.error_field(PG::PG_DIAG_SQLSTATE), e.message.lines.first.strip]
end

# The results of all that was sent, without waiting in a call of libpq's.
def results(conn)
  got = []
  while (result = next_result(conn))
    got << result.values
  end
  got
end

def next_result(conn)
  conn.flush
  while conn.is_busy
    conn.socket_io.wait_readable
    conn.consume_input
  end
  result = conn.get_result
  result&.check
end

# Text and binary, in and out; many results in one answer; errors.
def queries
  on_all('queries') do |conn, index|
    Array.new(12) do |turn|
      types = turn.even? ? PG::BasicTypeMapForResults.new(conn) : PG::TypeMapAllStrings.new
      conn.type_map_for_results = types
      binary = [{ value: [index + turn].pack('N'), type: 23, format: 1 }]
      [conn.exec("select #{index}, 'turn #{turn}'").values,
       conn.exec_params('select $1::text, $2::int, $3::bytea', ["#{index}.#{turn}", turn, nil]).values,
       conn.exec_params('select $1 + 1, $1', binary, 1).values,
       conn.exec("select 1; select 2; select #{turn}").values, conn.exec('').result_status,
       refused { conn.exec_params('select 1 / ($1::int - $1)', [turn]) },
       refused { conn.exec_params('select nonsense') }, conn.transaction_status,
       conn.exec(STATE).values]
    end
  end
end

# Names that collide between connections, and SQL that forgets them.
def statements
  on_all('statements') do |conn, index|
    Array.new(3) do |turn|
      conn.prepare('shared', 'select $1::text as answer')
      conn.prepare('own', "select $1::int * #{index + 1} as product, $2 as word", [0, 25])
      answers = Array.new(10) do |number|
        [conn.exec_prepared('shared', ["#{index}.#{number}"]).to_a,
         conn.exec_prepared('own', [number, 'w']).values]
      end
      described = conn.describe_prepared('own')
      answers << [described.nparams, described.paramtype(0), described.paramtype(1), described.fields]
      answers << refused { conn.prepare('own', 'select 1') } << refused { conn.exec_prepared('nobody') }
      conn.exec('deallocate own') if turn == 2
      conn.exec(['deallocate all', 'discard all', 'deallocate shared'][turn])
      answers << refused { conn.exec_prepared('shared', ['again']) }
    end
  end
end

# What a session holds follows its connection.
def settings
  on_all('settings') do |conn, index|
    Array.new(4) do |turn|
      conn.exec("set work_mem = '#{index + turn + 1}MB'")
      conn.exec_params("select set_config('app.tenant', $1, false)", ["it's #{index}"])
      conn.exec("set timezone = 'Asia/Tokyo'")
      answers = [conn.exec(STATE).values, conn.parameter_status('TimeZone')]
      refused { conn.transaction { conn.exec("set work_mem = '99MB'; select 1/0") } }
      answers << conn.exec(STATE).values
      conn.exec('create temp table numbers as select 1 as number') if turn == 1
      answers << conn.exec(STATE).values
      conn.exec('discard all')
      conn.reset if turn == 2
      answers << conn.exec(STATE).values << conn.parameter_status('TimeZone')
    end
  end
end

# Transactions by blocks, with savepoints and errors.
def transactions
  CONNS[0].exec('create table ruby_rows (owner int, body text unique)')
  on_all('transactions') do |conn, index|
    insert = 'insert into ruby_rows values ($1, $2)'
    Array.new(5) do |turn|
      row = [index, "kept #{index}.#{turn}"]
      conn.transaction do
        conn.exec_params(insert, row)
        conn.exec('savepoint halfway')
        refused { conn.exec_params(insert, row) }
        conn.exec('rollback to halfway')
        conn.exec("set local timezone = 'Africa/Cairo'")
      end
      answers = [refused do
        conn.transaction do
          conn.exec_params('delete from ruby_rows where owner = $1', [index])
          conn.exec('select nonsense')
        end
      end]
      conn.exec('begin')
      refused { conn.exec('nonsense') }
      answers << conn.transaction_status << refused { conn.exec('select 1') }
      conn.exec('rollback')
      answers << conn.exec_params('select body from ruby_rows where owner = $1 order by 1', [index]).values
    end
  end
end

# COPY in and out, in text and binary; refused rows; a copy given up.
def copies
  CONNS[0].exec('create table ruby_copied (owner int, body text unique)')
  on_all('copies') do |conn, index|
    text = PG::TextEncoder::CopyRow.new
    Array.new(3) do |turn|
      rows = Array.new(200) { |number| [index, "#{index}.#{turn}.#{number} #{'x' * 100}"] }
      copy_in = lambda do
        conn.copy_data('copy ruby_copied from stdin', text) { rows.each { |row| conn.put_copy_data(row) } }
      end
      copy_in.call
      conn.copy_data('copy ruby_copied from stdin (format binary)') do
        body = "#{index}.#{turn} binary"
        bytes = ["PGCOPY\n\xFF\r\n\0".b, 0, 0, 2, 4, index, body.length, body, 0xffff]
        conn.put_copy_data(bytes.pack('a*NNnNNNa*n'))
      end
      out = []
      from = "copy (select * from ruby_copied where owner = #{index} order by body) to stdout"
      conn.copy_data(from, PG::TextDecoder::CopyRow.new) do
        while (row = conn.get_copy_data)
          out << row
        end
      end
      [out.length, out.first, out.last, out.map(&:first).uniq,
       refused(&copy_in),
       begin
         conn.copy_data('copy ruby_copied from stdin', text) do
           conn.put_copy_data([index, 'given up'])
           raise ZeroDivisionError
         end
       rescue ZeroDivisionError
         'given up'
       end,
       conn.exec_params('select count(*) from ruby_copied where owner = $1', [index]).values,
       conn.transaction_status]
    end
  end
end

# Cursors, in transactions and held behind them.
def cursors
  on_all('cursors') do |conn, index|
    numbers = "for select i * #{index + 1} from generate_series(1, 30) i"
    Array.new(3) do |turn|
      answers = conn.transaction do
        conn.exec("declare short cursor #{numbers}")
        [conn.exec('fetch 4 from short').values, conn.exec('move 10 in short').cmd_status,
         conn.exec('fetch 2 from short').values]
      end
      conn.exec("declare held scroll cursor with hold #{numbers}")
      ['fetch 3 from held', 'select count(*) from ruby_rows', 'fetch backward 2 from held',
       'fetch last from held', "select name, is_holdable from pg_cursors where name = 'held'"].each do |sql|
        answers << conn.exec(sql).values
      end
      conn.exec(turn == 2 ? 'discard all' : 'close held')
      answers << refused { conn.exec('fetch 1 from held') }
    end
  end
end

# Calls of libpq's that do not wait; rows one by one; pipelines.
def asynchronous
  on_all('asynchronous') do |conn, index|
    Array.new(3) do |turn|
      answers = []
      conn.send_query("select #{index}; select #{turn}")
      answers << results(conn)
      conn.send_query_params('select $1::text', ["#{index}.#{turn}"])
      answers << results(conn)
      conn.send_prepare('sent', 'select $1::int + 1')
      answers << results(conn)
      conn.send_describe_prepared('sent')
      answers << results(conn)
      conn.send_query_prepared('sent', [turn])
      answers << results(conn)
      conn.send_query_params('select $1::int + i from generate_series(1, 40) i', [index])
      conn.set_single_row_mode
      answers << conn.get_result.stream_each_row.to_a.flatten << conn.get_result
      conn.setnonblocking(true)
      conn.send_query_params('select length($1)', ['x' * 300_000])
      answers << results(conn)
      conn.setnonblocking(false)
      answers << pipeline(conn, index)
      conn.exec('deallocate sent')
      answers
    end
  end
end

# Statements in a pipeline, one of which fails.
def pipeline(conn, index)
  conn.enter_pipeline_mode
  5.times { |number| conn.send_query_params('select $1::int', [index * 10 + number]) }
  conn.pipeline_sync
  conn.send_query_params('select 1 / ($1::int - $1)', [index])
  conn.send_query_params('select $1::text', ['skipped'])
  conn.pipeline_sync
  conn.send_query_params('select $1::text', ['after'])
  conn.pipeline_sync
  syncs = 0
  got = []
  until syncs == 3
    result = conn.get_result or next
    syncs += 1 if result.result_status == PG::PGRES_PIPELINE_SYNC
    got << [result.result_status, result.values, result.error_field(PG::PG_DIAG_SQLSTATE)]
  end
  conn.exit_pipeline_mode
  got
end

# LISTEN, and waiting for what others notify; notices.
def notifications
  on_all('listens') { |conn, index| [conn.exec("listen ruby_all; listen \"ruby #{index}\"").cmd_status] }
  on_all('notified') do |conn, index|
    Array.new(5) do |turn|
      other = (index + 1) % CLIENTS
      conn.exec_params('select pg_notify($1, $2)', ["ruby #{other}", "#{index}.#{turn}"])
      heard = nil
      conn.wait_for_notify(30) { |channel, _, payload| heard = [channel, payload] }
      notices = []
      conn.set_notice_processor { |message| notices << message }
      conn.exec("do $$ begin raise notice 'notice of #{index}.#{turn}'; end $$")
      conn.set_notice_processor
      [heard, notices]
    end
  end
  CONNS[0].transaction do
    CONNS[0].exec("notify ruby_all, 'one'; notify ruby_all, 'two'")
  end
  on_all('notified all') do |conn, _|
    heard = []
    2.times { conn.wait_for_notify(30) { |channel, _, payload| heard << [channel, payload] } }
    conn.exec('unlisten *')
    heard
  end
  CONNS[0].exec("notify ruby_all, 'late'")
  on_all('unlistened') { |conn, _| [conn.exec('select pg_listening_channels()').values, conn.notifies] }
end

# A cancelled statement ends, one at a time; those of the others go on.
def cancels
  one_by_one = Mutex.new
  on_all('cancels') do |conn, index|
    if index.odd?
      [Array.new(50) { |turn| conn.exec_params('select $1::text', ["#{index}.#{turn}"]).getvalue(0, 0) }]
    else
      one_by_one.synchronize { [cancelled(conn, "/* ruby #{index} */"), conn.exec('select 1').values] }
    end
  end
end

# Has a statement run, and cancels it once PostgreSQL shows it.
def cancelled(conn, mark)
  conn.send_query("select pg_sleep(60) #{mark}")
  active = "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid() " \
           "and query like '%' || $1"
  watcher = connect(CLIENTS)
  Thread.pass until watcher.exec_params(active, ["(60) #{mark}"]).getvalue(0, 0) == '1'
  watcher.close
  conn.cancel
  refused { conn.get_last_result }
end

# Large answers and parameters.
def large
  on_all('large') do |conn, index|
    text = (97 + index).chr * (1 << 20)
    Array.new(2) do
      answer, length = conn.exec_params('select $1::text, length($1)', [text]).values.first
      [answer == text, length]
    end
  end
end

# Large objects, whose calls are the protocol's FunctionCall.
def large_objects
  on_all('large objects') do |conn, index|
    Array.new(2) do
      conn.transaction do
        oid = conn.lo_creat
        opened = conn.lo_open(oid, PG::INV_READ | PG::INV_WRITE)
        written = conn.lo_write(opened, "object of #{index} " * 1000)
        conn.lo_lseek(opened, 10, PG::SEEK_SET)
        read = conn.lo_read(opened, 30)
        conn.lo_close(opened)
        conn.lo_unlink(oid)
        [written, read]
      end
    end
  end
end

begin
  CONNS = Array.new(CLIENTS) { |index| connect(index) }
  CONNS[0].exec('set client_min_messages = error; drop table if exists ruby_rows, ruby_copied')
  CONNS[0].exec('discard all')
  queries
  statements
  settings
  transactions
  copies
  cursors
  asynchronous
  notifications
  cancels
  large
  large_objects
  CONNS.each(&:close)
  puts 'end 1'
rescue StandardError => e
  abort "ruby-pg #{PG::VERSION}: #{e.class}: #{e.message} (#{e.backtrace.grep(/^workload/).join(', ')})"
end
