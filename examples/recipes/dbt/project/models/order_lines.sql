select (n // 3) + 1 as order_id, (n % 3) + 1 as line, (n * 1.25)::decimal(12, 2) as amount
from range(0, 600) as rows(n)
where n % 100 <> {{ var('lost', 100) }}
