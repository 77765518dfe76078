// Ranks of one host exchange their parts through memory that they share. A rank that has to wait
// sleeps in the kernel: there may be more ranks than cores.
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels.h"
#include "pool.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define API extern "C" __attribute__((visibility("default")))

extern "C" void arm_combine(int, const float* const*, const uint8_t*, const uint8_t*, int64_t,
                            int64_t, int64_t, float*);

namespace {

// One cache line a rank: how many steps it has finished.
struct alignas(64) Counter {
  std::atomic<uint32_t> steps;
};

void sleep_while(std::atomic<uint32_t>& word, uint32_t value) {
#if defined(__linux__)
  timespec limit{0, 50 * 1000 * 1000};
  syscall(SYS_futex, (uint32_t*)&word, FUTEX_WAIT, value, &limit, nullptr, 0);
#else
  (void)word, (void)value;
  std::this_thread::yield();
#endif
}

void post(Counter* counters, int rank, uint32_t step) {
  counters[rank].steps.store(step, std::memory_order_release);
#if defined(__linux__)
  syscall(SYS_futex, (uint32_t*)&counters[rank].steps, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
#endif
}

// Wait until every rank has finished `step`; false when a rank is later than `seconds`.
bool wait_for_all(Counter* counters, int world, uint32_t step, double seconds) {
  using clock = std::chrono::steady_clock;
  const auto limit = clock::now() + std::chrono::duration<double>(seconds);
  for (int r = 0; r < world; ++r)
    for (int tries = 0;; ++tries) {
      const uint32_t found = counters[r].steps.load(std::memory_order_acquire);
      if ((int32_t)(found - step) >= 0) break;
      if (tries < 4) {
        std::this_thread::yield();
        continue;
      }
      if (clock::now() > limit) return false;
      sleep_while(counters[r].steps, found);
    }
  return true;
}

constexpr int64_t LARGE = 1 << 14;  // elements from which each rank finishes only its own stretch

}  // namespace

// The size of the shared memory in bytes: counters, then two sets of slots, then two results.
API int64_t arm_exchange_bytes(int world, int64_t capacity) {
  return world * 64 + (2 * (int64_t)world + 2) * capacity * 4;
}

// Publish `mine` (count floats), wait for all, and give the start of each rank's slot. Slots are used
// in turn: a rank is two steps ahead only when all have left the first.
API int arm_exchange_gather(void* memory, int rank, int world, int64_t capacity, uint32_t* step,
                            const float* mine, int64_t count, double seconds,
                            const float** slots) {
  Counter* counters = (Counter*)memory;
  float* set = (float*)((char*)memory + world * 64) + (int64_t)(*step / 2 % 2) * world * capacity;
  if (mine) std::memcpy(set + rank * capacity, mine, count * 4);
  *step += 2;
  post(counters, rank, *step - 1);
  if (!wait_for_all(counters, world, *step - 1, seconds)) return 0;
  for (int r = 0; r < world; ++r) slots[r] = set + r * capacity;
  return 1;
}

// Publish this rank's parts (each n floats, one after the other) and finish the tree. Elements are
// independent: for long messages each rank finishes a stretch, and the stretches are put together.
// `owner` and `place` say whose slot holds each part of the tree, and at which position.
API int arm_exchange_tree(int isa, void* memory, int rank, int world, int64_t capacity,
                          uint32_t* step, const float* mine, int64_t parts_of_mine, int64_t n,
                          const int32_t* owner, const int32_t* place, int64_t parts,
                          const uint8_t* merges, const uint8_t* rounded, double seconds,
                          float* out) {
  std::vector<const float*> slots(world), where(parts);
  const int64_t turn = *step / 2 % 2;
  if (!arm_exchange_gather(memory, rank, world, capacity, step, mine, parts_of_mine * n, seconds,
                           slots.data()))
    return 0;
  for (int64_t i = 0; i < parts; ++i) where[i] = slots[owner[i]] + place[i] * n;
  Counter* counters = (Counter*)memory;
  if (n < LARGE) {
    post(counters, rank, *step);
    arm_combine(isa, where.data(), merges, rounded, parts, 0, n, out);
    return 1;
  }
  float* result =
      (float*)((char*)memory + world * 64) + (2 * (int64_t)world + turn) * capacity;
  const int64_t first = n / 16 * rank / world * 16;
  const int64_t last = rank + 1 == world ? n : n / 16 * (rank + 1) / world * 16;
  arm_combine(isa, where.data(), merges, rounded, parts, first, last, result);
  post(counters, rank, *step);
  if (!wait_for_all(counters, world, *step, seconds)) return 0;
  std::memcpy(out, result, n * 4);
  return 1;
}
