// The types of NPKit's events. Nothing is collected: the numbers are only distinct.
#pragma once

inline constexpr int NPKIT_EVENT_INVALID = 0x0;
inline constexpr int NPKIT_EVENT_TIME_SYNC_GPU = 0x1;
inline constexpr int NPKIT_EVENT_TIME_SYNC_CPU = 0x2;
inline constexpr int NPKIT_EVENT_EXECUTOR_INIT_ENTRY = 0x3;
inline constexpr int NPKIT_EVENT_EXECUTOR_INIT_EXIT = 0x4;
inline constexpr int NPKIT_EVENT_KERNEL_ALLREDUCE_ENTRY = 0x5;
inline constexpr int NPKIT_EVENT_KERNEL_ALLREDUCE_EXIT = 0x6;
/// An operation of the executor adds its number to these.
inline constexpr int NPKIT_EVENT_EXECUTOR_OP_BASE_ENTRY = 0x40;
inline constexpr int NPKIT_EVENT_EXECUTOR_OP_BASE_EXIT = 0x80;
