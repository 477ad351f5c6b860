-- Rows that only one side has; none if the copy is right.
SELECT count(*) AS customers FROM shop.customers;
SELECT count(*) AS only_in_the_shop FROM (TABLE shop.customers EXCEPT TABLE customers) AS missing;
SELECT count(*) AS only_in_the_copy FROM (TABLE customers EXCEPT TABLE shop.customers) AS wrong;
