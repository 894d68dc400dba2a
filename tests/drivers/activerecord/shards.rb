# frozen_string_literal: true

# ActiveRecord on a database that may be sharded: tenants in WHERE, and a tenant said for each request.
#
# The server is told by PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. What is printed is the same
# whether there are shards or not.

require 'active_record'
require 'pg'

SERVER = { adapter: 'postgresql', host: ENV.fetch('PGHOST'), port: ENV.fetch('PGPORT'),
           username: ENV.fetch('PGUSER'), password: ENV.fetch('PGPASSWORD'),
           database: ENV.fetch('PGDATABASE'), pool: 2 }.freeze

class Account < ActiveRecord::Base
  self.primary_key = 'account_id'
  has_many :orders
end

class Order < ActiveRecord::Base
  self.primary_key = 'id'
  belongs_to :account, foreign_key: 'account_id'
  # Which of a tenant's rows: ActiveRecord 6 knows no keys of several columns.
  scope :of, ->(tenant) { where(account_id: tenant) }
end

class Serial < ActiveRecord::Base
  self.primary_key = 'serial_no'
end

def reads(tenant)
  orders = Order.of(tenant)
  [orders.count, orders.exists?, orders.order(:id).limit(2).pluck(:id, :total), orders.sum(:total),
   orders.joins(:account).order('orders.id').pluck('accounts.name'),
   orders.where('total > 3').or(orders.where(note: nil)).order(:id).ids,
   Account.where(account_id: tenant).left_joins(:orders).group(:name).count,
   orders.includes(:account).order(:id).map { |order| order.account.name },
   orders.find_by(id: 2)&.note, orders.in_batches(of: 2).map { |batch| batch.pluck(:id) }.flatten.sort]
end

def writes(tenant)
  seen = []
  Order.transaction do
    seen << Order.of(tenant).update_all('total = id + 1')
    Order.insert_all([{ account_id: tenant, id: 500, total: 1 }], unique_by: %i[account_id id])
    begin
      Order.transaction(requires_new: true) { Order.create!(account_id: tenant, id: 500) }
    rescue ActiveRecord::RecordNotUnique
      seen << 'again'
    end
    seen << Order.of(tenant).lock.order(:id).pluck(:id, :total)
    seen << Order.of(tenant).where('id >= 500').delete_all
    raise ActiveRecord::Rollback
  end
  Serial.transaction do
    serial = Serial.find(tenant)
    serial.update!(weight: 99)
    seen << serial.reload.weight
    raise ActiveRecord::Rollback
  end
  seen
end

# A request that says its tenant; its statements don't.
def request(tenant)
  Order.connection.execute("set howdah.key = 'tenant:#{tenant}'")
  seen = [Order.where('account_id + 0 = ?', tenant).order(:id).ids]
  Order.transaction do
    seen << Order.where('account_id + 0 = ?', tenant).update_all(note: 'x')
    raise ActiveRecord::Rollback
  end
  seen
ensure
  Order.connection.execute('reset howdah.key')
end

[true, false].each do |prepared|
  ActiveRecord::Base.establish_connection(**SERVER, prepared_statements: prepared)
  (1..12).each do |tenant|
    %i[reads writes request].each { |work| puts "#{prepared} #{tenant} #{work} #{send(work, tenant)}" }
  end
end
puts 'end 1'
