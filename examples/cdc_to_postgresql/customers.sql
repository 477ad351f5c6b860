-- The shop's own table; a real shop has it in another database.
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, city text NOT NULL);

-- The copy.
CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, city text NOT NULL);
