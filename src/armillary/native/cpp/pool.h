// Threads that wait for work. Which thread does which piece never matters to a result: pieces are
// independent columns or rows.
#pragma once
#include <cstdint>
#include <functional>

// Whether subnormal numbers are kept (as IEEE has it) and rounding is to nearest: set for the
// duration of a call, whatever the host has set.
class FloatingPoint {
 public:
  FloatingPoint();
  ~FloatingPoint();
  FloatingPoint(const FloatingPoint&) = delete;

 private:
  uint32_t before_ = 0;
};

// Do pieces 0 ... count - 1 on up to `threads` threads, this one among them.
void parallel(int threads, int64_t count, const std::function<void(int64_t)>& piece);
