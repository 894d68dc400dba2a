# frozen_string_literal: true

# It fails behind its first change, which its transaction takes back.
class Fails < ActiveRecord::Migration[6.1]
  def change
    add_column :people, :lost, :integer
    execute 'select 1 / 0'
  end
end
