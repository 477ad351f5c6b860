-- The shop's own table; a real shop has it in another database.
CREATE SCHEMA shop;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text NOT NULL, city text NOT NULL);

-- The copy. A deleted customer stays as a row that the view leaves out, so that an older change,
-- which may come later within one batch, cannot bring it back.
CREATE TABLE customers_and_deleted (
  id bigint PRIMARY KEY,
  name text,
  city text,
  is_deleted boolean NOT NULL,
  source_offset bigint NOT NULL
);
CREATE VIEW customers AS SELECT id, name, city FROM customers_and_deleted WHERE NOT is_deleted;

-- The job writes changes here. The trigger applies each one to the copy, in the transaction of the
-- batch, and RETURN NULL keeps this table empty.
CREATE TABLE customer_changes (
  id bigint NOT NULL,
  name text,
  city text,
  is_deleted boolean NOT NULL,
  source_offset bigint NOT NULL
);
CREATE FUNCTION apply_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO customers_and_deleted AS latest
  VALUES (NEW.id, NEW.name, NEW.city, NEW.is_deleted, NEW.source_offset)
  ON CONFLICT (id) DO UPDATE
  SET name = NEW.name, city = NEW.city, is_deleted = NEW.is_deleted,
      source_offset = NEW.source_offset
  WHERE latest.source_offset < NEW.source_offset;
  RETURN NULL;
END
$$;
CREATE TRIGGER apply_change BEFORE INSERT ON customer_changes
FOR EACH ROW EXECUTE FUNCTION apply_change();
