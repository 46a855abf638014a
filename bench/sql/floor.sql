-- For pgbench: the statement that the function sends. The bench puts the workload's SKU in.
\set order random(100000000000, 100000000999)
\set sku {sku}
\set key random(1000000000000000000, 9000000000000000000)
select * from holdfast.allocate(holdfast.json(convert_to('{"tenantId":"11111111-1111-4111-8111-111111111111","userId":"22222222-2222-4222-8222-222222222222","actor":"user:22222222-2222-4222-8222-222222222222","key":"bench-:key","method":"POST","path":"/orders/66666666-6666-4666-8666-:order/allocate","hash":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","lockRequest":-:key,"lockKey": :key,"orderId":"66666666-6666-4666-8666-:order","lines":[{"skuId":"55555555-5555-4555-8555-:sku","qty":1}]}', 'UTF8')));
