; The hot verbs of the run-time interface for devices behind a driver: compiled for the host beside the device and
; stored in every artifact, so that no Python runs between two launches.
;
; Design choice: functions of the driver are called through addresses that the port wrote into its state, so this code
; refers to no library.  State, in 64-bit words:
;     0  address of (function, grid x y z, lanes x y z, scratch, stream, args, extra) -> status
;     1  address of (device) -> status, which makes the device current for the calling thread
;     2  the device, as that function takes it
;     3  the last status that was not 0

; Run workgroups 0 .. %grid-1 of %kernel: each argument word is one parameter.
define i32 @hwsdk_gpu_launch(ptr %s, i64 %kernel, i64 %grid, ptr %args, i64 %count, i64 %work, i64 %stream,
                             i64 %lanes, i64 %scratch) nounwind {
entry:
  %empty = icmp sle i64 %grid, 0
  br i1 %empty, label %fine, label %some
some:
  %too.many = icmp ugt i64 %grid, 2147483647
  %no.lanes = icmp ult i64 %lanes, 1
  %wrong = or i1 %too.many, %no.lanes
  br i1 %wrong, label %refuse, label %slots
slots:
  %places = alloca ptr, i64 %count, align 16
  %none = icmp eq i64 %count, 0
  br i1 %none, label %call, label %fill
fill:
  %i = phi i64 [ 0, %slots ], [ %i.next, %fill ]
  %word = getelementptr i64, ptr %args, i64 %i
  %place = getelementptr ptr, ptr %places, i64 %i
  store ptr %word, ptr %place, align 8
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %fill, label %call
call:
  %launch = load ptr, ptr %s, align 8
  %grid.x = trunc i64 %grid to i32
  %lanes.x = trunc i64 %lanes to i32
  %bytes = trunc i64 %scratch to i32
  %handle = inttoptr i64 %kernel to ptr
  %queue = inttoptr i64 %stream to ptr
  %status = call i32 %launch(ptr %handle, i32 %grid.x, i32 1, i32 1, i32 %lanes.x, i32 1, i32 1, i32 %bytes,
                             ptr %queue, ptr %places, ptr null)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %fine, label %failed
refuse:
  br label %failed
failed:
  %code = phi i32 [ %status, %call ], [ 1, %refuse ]
  %slot = getelementptr i64, ptr %s, i64 3
  %wide = zext i32 %code to i64
  store i64 %wide, ptr %slot, align 8
  ret i32 %code
fine:
  ret i32 0
}

; An inference begins: its device becomes current for this thread.
define i32 @hwsdk_gpu_begin(ptr %s, i64 %work, i64 %stream) nounwind {
entry:
  %function.p = getelementptr i64, ptr %s, i64 1
  %function = load ptr, ptr %function.p, align 8
  %device.p = getelementptr i64, ptr %s, i64 2
  %device = load i64, ptr %device.p, align 8
  %status = call i32 %function(i64 %device)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %fine, label %failed
failed:
  %slot = getelementptr i64, ptr %s, i64 3
  %wide = zext i32 %status to i64
  store i64 %wide, ptr %slot, align 8
  ret i32 %status
fine:
  ret i32 0
}

define i32 @hwsdk_gpu_end(ptr %s, i64 %stream) nounwind {
  ret i32 0
}
