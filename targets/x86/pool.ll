; The thread pool: hands the tiles of one launch to the workers.  Compiled like a kernel and stored in every artifact.
;
; Design choice: the caller helps itself.  It publishes a generation, claims tiles like every worker and then waits for
; *tiles done*, never for workers; so a worker that is asleep, slow or not there (a forked child) costs speed and nothing
; else.  All state is one zeroed block; zero workers is a valid state, and it is what a forked child finds (the block is
; mapped wipe-on-fork).
;
; State, by 64-byte lines so that the words that bounce between cores do not share one:
;     0  i64 word       generation << 32 | tiles left.  Claimed by compare-and-swap, published by a release store.
;    64  i64 done       tiles finished in this generation
;   128  ptr function   128..160 are written before the word is published and read only after a successful claim:
;   136  ptr args       a claim pins the generation until its tiles are counted as done
;   144  i64 total
;   152  i64 base       first tile of this generation (launches above 2^31 tiles run as several generations)
;   192  i32 futex      bumped before sleepers are woken
;   196  i32 sleepers
;   256  i32 lock       held by the caller that owns the pool; others run their tiles themselves
;   320  i32 hot        runs in progress that want the workers awake
;   384  i32 workers    threads beside the caller; constant after start
;   388  i32 stop
;   392  i32 started    hands out worker indices 1, 2, ...
;   400  i64 serial_below   launches with 0 < work < this many cycles run on the caller alone
;   408  i64 wake_above     sleepers are woken only for work of at least this many cycles (or of unknown size)
;   416  i64 spin           cycles that an idle worker spins before it sleeps
;   424  i64 spin_hot       the same while a run is in progress
;   432  i64 share          log2 of the fraction of the remaining tiles that one claim takes

declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare i64 @syscall(i64, ...)

; Claim one or more tiles: the word before the claim and how many, or zero tiles.
define internal { i64, i64 } @claim(ptr %s) nounwind alwaysinline {
entry:
  %share.p = getelementptr i8, ptr %s, i64 432
  %first = load atomic i64, ptr %s acquire, align 8
  br label %retry
retry:
  %word = phi i64 [ %first, %entry ], [ %seen, %try ]
  %left = and i64 %word, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %nothing, label %try
try:
  ; guided: a fixed fraction of what is left, at least one
  %share = load i64, ptr %share.p, align 8
  %part = lshr i64 %left, %share
  %single = icmp eq i64 %part, 0
  %count = select i1 %single, i64 1, i64 %part
  %next = sub i64 %word, %count
  %swap = cmpxchg ptr %s, i64 %word, i64 %next acq_rel acquire, align 8
  %seen = extractvalue { i64, i1 } %swap, 0
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %claimed, label %retry
claimed:
  %r0 = insertvalue { i64, i64 } poison, i64 %left, 0
  %r1 = insertvalue { i64, i64 } %r0, i64 %count, 1
  ret { i64, i64 } %r1
nothing:
  ret { i64, i64 } zeroinitializer
}

; Run tiles as worker %worker until none is left.
define internal void @drain(ptr %s, i64 %worker) nounwind noinline {
entry:
  %done.p = getelementptr i8, ptr %s, i64 64
  %function.p = getelementptr i8, ptr %s, i64 128
  %args.p = getelementptr i8, ptr %s, i64 136
  %total.p = getelementptr i8, ptr %s, i64 144
  %base.p = getelementptr i8, ptr %s, i64 152
  br label %next
next:
  %claim = call { i64, i64 } @claim(ptr %s)
  %left = extractvalue { i64, i64 } %claim, 0
  %count = extractvalue { i64, i64 } %claim, 1
  %none = icmp eq i64 %count, 0
  br i1 %none, label %out, label %run
run:
  %function = load ptr, ptr %function.p, align 8
  %args = load ptr, ptr %args.p, align 8
  %total = load i64, ptr %total.p, align 8
  %base = load i64, ptr %base.p, align 8
  %from.0 = sub i64 %total, %left
  %from = add i64 %from.0, %base
  %to = add i64 %from, %count
  br label %tile
tile:
  %i = phi i64 [ %from, %run ], [ %i.next, %tile ]
  call void %function(ptr %args, i64 %i, i64 %worker)
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %to
  br i1 %more, label %tile, label %count.done
count.done:
  %before = atomicrmw add ptr %done.p, i64 %count acq_rel, align 8
  br label %next
out:
  ret void
}

; Body of a worker thread (started with pthread_create): spin for work, then sleep.
define ptr @hwsdk_pool_worker(ptr %s) nounwind {
entry:
  %futex.p = getelementptr i8, ptr %s, i64 192
  %sleepers.p = getelementptr i8, ptr %s, i64 196
  %hot.p = getelementptr i8, ptr %s, i64 320
  %stop.p = getelementptr i8, ptr %s, i64 388
  %started.p = getelementptr i8, ptr %s, i64 392
  %spin.p = getelementptr i8, ptr %s, i64 416
  %spin.hot.p = getelementptr i8, ptr %s, i64 424
  %before = atomicrmw add ptr %started.p, i32 1 acq_rel, align 4
  %index.0 = add i32 %before, 1
  %worker = zext i32 %index.0 to i64
  br label %idle
idle:
  %stop.now = load atomic i32, ptr %stop.p acquire, align 4
  %stopping = icmp ne i32 %stop.now, 0
  br i1 %stopping, label %out, label %idle.start
idle.start:
  %start = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %word = load atomic i64, ptr %s acquire, align 8
  %left = and i64 %word, 4294967295
  %has = icmp ne i64 %left, 0
  br i1 %has, label %work, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  %now = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %now, %start
  %hot = load atomic i32, ptr %hot.p monotonic, align 4
  %is.hot = icmp ne i32 %hot, 0
  %spin = load i64, ptr %spin.p, align 8
  %spin.hot = load i64, ptr %spin.hot.p, align 8
  %limit = select i1 %is.hot, i64 %spin.hot, i64 %spin
  %again = icmp ult i64 %waited, %limit
  br i1 %again, label %look, label %sleep
work:
  call void @drain(ptr %s, i64 %worker)
  br label %idle
sleep:
  ; Announce, read the futex, look once more, wait.  A caller publishes, then looks for sleepers: one of the two sees
  ; the other.
  %s0 = atomicrmw add ptr %sleepers.p, i32 1 seq_cst, align 4
  %seen = load atomic i32, ptr %futex.p seq_cst, align 4
  %word.2 = load atomic i64, ptr %s seq_cst, align 8
  %left.2 = and i64 %word.2, 4294967295
  %has.2 = icmp ne i64 %left.2, 0
  %stop.2 = load atomic i32, ptr %stop.p seq_cst, align 4
  %stopping.2 = icmp ne i32 %stop.2, 0
  %stay = or i1 %has.2, %stopping.2
  br i1 %stay, label %awake, label %wait
wait:
  ; futex(FUTEX_WAIT | FUTEX_PRIVATE)
  %rc = call i64 (i64, ...) @syscall(i64 202, ptr %futex.p, i64 128, i32 %seen, ptr null, ptr null, i64 0)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst, align 4
  br label %idle
out:
  ret ptr null
}

; Wake all sleepers, if there are any.
define internal void @wake(ptr %s) nounwind noinline {
entry:
  %futex.p = getelementptr i8, ptr %s, i64 192
  %sleepers.p = getelementptr i8, ptr %s, i64 196
  fence seq_cst
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %none = icmp eq i32 %sleepers, 0
  br i1 %none, label %out, label %call
call:
  %old = atomicrmw add ptr %futex.p, i32 1 seq_cst, align 4
  ; futex(FUTEX_WAKE | FUTEX_PRIVATE, all)
  %rc = call i64 (i64, ...) @syscall(i64 202, ptr %futex.p, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %out
out:
  ret void
}

; Tell the workers to end.  A worker finishes the tiles that it has claimed.
define void @hwsdk_pool_stop(ptr %s) nounwind {
  %stop.p = getelementptr i8, ptr %s, i64 388
  store atomic i32 1, ptr %stop.p seq_cst, align 4
  call void @wake(ptr %s)
  ret void
}

; A run of %work cycles in total begins: keep the workers awake until it ends, if that is worth it.
define i32 @hwsdk_pool_begin(ptr %s, i64 %work, i64 %stream) nounwind {
entry:
  %hot.p = getelementptr i8, ptr %s, i64 320
  %above.p = getelementptr i8, ptr %s, i64 408
  %old = atomicrmw add ptr %hot.p, i32 1 monotonic, align 4
  %above = load i64, ptr %above.p, align 8
  %large = icmp uge i64 %work, %above
  br i1 %large, label %awake, label %out
awake:
  call void @wake(ptr %s)
  br label %out
out:
  ret i32 0
}

define i32 @hwsdk_pool_end(ptr %s, i64 %stream) nounwind {
  %hot.p = getelementptr i8, ptr %s, i64 320
  %old = atomicrmw sub ptr %hot.p, i32 1 monotonic, align 4
  ret i32 0
}

define internal void @serial(ptr %function, ptr %args, i64 %total) nounwind noinline {
entry:
  br label %tile
tile:
  %i = phi i64 [ 0, %entry ], [ %i.next, %tile ]
  call void %function(ptr %args, i64 %i, i64 0)
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %total
  br i1 %more, label %tile, label %out
out:
  ret void
}

; Launch verb of the run-time interface: run %function(%args, tile, worker) for every tile in [0, %grid).
define i32 @hwsdk_pool_launch(ptr %s, ptr %function, i64 %grid, ptr %args, i64 %count, i64 %work, i64 %stream,
                              i64 %lanes, i64 %scratch) nounwind {
entry:
  %lock.p = getelementptr i8, ptr %s, i64 256
  %workers.p = getelementptr i8, ptr %s, i64 384
  %below.p = getelementptr i8, ptr %s, i64 400
  %above.p = getelementptr i8, ptr %s, i64 408
  %empty = icmp sle i64 %grid, 0
  br i1 %empty, label %out, label %some
some:
  %workers = load i32, ptr %workers.p, align 4
  %below = load i64, ptr %below.p, align 8
  %alone = icmp eq i32 %workers, 0
  %single = icmp eq i64 %grid, 1
  %known = icmp ne i64 %work, 0
  %under = icmp ult i64 %work, %below
  %small = and i1 %known, %under
  %no.0 = or i1 %alone, %single
  %no = or i1 %no.0, %small
  br i1 %no, label %by.itself, label %try
try:
  %swap = cmpxchg ptr %lock.p, i32 0, i32 1 acquire monotonic, align 4
  %owner = extractvalue { i32, i1 } %swap, 1
  br i1 %owner, label %shared, label %by.itself
by.itself: ; one tile, too little work, nested in a task, or another caller owns the pool
  call void @serial(ptr %function, ptr %args, i64 %grid)
  br label %out
shared:
  %done.p = getelementptr i8, ptr %s, i64 64
  %function.p = getelementptr i8, ptr %s, i64 128
  %args.p = getelementptr i8, ptr %s, i64 136
  %total.p = getelementptr i8, ptr %s, i64 144
  %base.p = getelementptr i8, ptr %s, i64 152
  %above = load i64, ptr %above.p, align 8
  %over = icmp uge i64 %work, %above
  %unknown = icmp eq i64 %work, 0
  %worth.waking = or i1 %over, %unknown
  store ptr %function, ptr %function.p, align 8
  store ptr %args, ptr %args.p, align 8
  br label %generation
generation:
  %base = phi i64 [ 0, %shared ], [ %base.next, %finished ]
  %rest = sub i64 %grid, %base
  %fits = icmp ult i64 %rest, 2147483648
  %total = select i1 %fits, i64 %rest, i64 2147483648
  store i64 %total, ptr %total.p, align 8
  store i64 %base, ptr %base.p, align 8
  store atomic i64 0, ptr %done.p monotonic, align 8
  %word = load atomic i64, ptr %s monotonic, align 8
  %number = lshr i64 %word, 32
  %number.next = add i64 %number, 1
  %high = shl i64 %number.next, 32
  %publish = or i64 %high, %total
  store atomic i64 %publish, ptr %s release, align 8
  br i1 %worth.waking, label %rouse, label %help
rouse:
  call void @wake(ptr %s)
  br label %help
help:
  call void @drain(ptr %s, i64 0)
  br label %wait
wait:
  %turn = phi i64 [ 0, %help ], [ %turn.next, %pause ], [ 0, %yield ]
  %done = load atomic i64, ptr %done.p acquire, align 8
  %all = icmp eq i64 %done, %total
  br i1 %all, label %finished, label %more
more:
  %turn.next = add i64 %turn, 1
  %long = icmp ugt i64 %turn.next, 4000
  br i1 %long, label %yield, label %pause
pause:
  call void @llvm.x86.sse2.pause()
  br label %wait
yield: ; the worker that holds the last tiles may have lost its core: sched_yield
  %rc = call i64 (i64, ...) @syscall(i64 24)
  br label %wait
finished:
  %base.next = add i64 %base, %total
  %again = icmp ult i64 %base.next, %grid
  br i1 %again, label %generation, label %unlock
unlock:
  store atomic i32 0, ptr %lock.p release, align 4
  br label %out
out:
  ret i32 0
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Copy verbs of the run-time interface: device and host addresses are the same here.
define i32 @hwsdk_pool_copy(ptr %s, ptr %destination, ptr %source, i64 %size, i64 %stream) nounwind {
  call void @llvm.memcpy.p0.p0.i64(ptr %destination, ptr %source, i64 %size, i1 false)
  ret i32 0
}
