select id, 'customer ' || id as name, {{ var('discount', 0) }} as discount
from range(1, 201) as rows(id)
