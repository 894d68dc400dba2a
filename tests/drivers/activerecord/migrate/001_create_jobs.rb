# frozen_string_literal: true

# Tables with indexes, in one transaction, as most migrations are.
class CreateJobs < ActiveRecord::Migration[6.1]
  def change
    create_table :jobs, id: :uuid, default: -> { 'gen_random_uuid()' } do |t|
      t.integer :number, null: false
      t.text :queue_name
      t.jsonb :serialized_params
      t.datetime :finished_at
      t.timestamps
    end
    add_index :jobs, :number, unique: true
    create_table :people do |t|
      t.integer :owner, null: false
      t.string :name, null: false
      t.decimal :balance, precision: 10, scale: 2, default: 0
      t.interval :worked
      t.string :words, array: true, default: []
      t.integer :lock_version, default: 0
      t.timestamps
      t.index %i[owner name], unique: true
    end
  end
end
