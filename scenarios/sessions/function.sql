SELECT bench_one();
