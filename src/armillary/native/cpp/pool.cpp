#include "pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define FORKS 1
#endif
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

FloatingPoint::FloatingPoint() {
#if defined(__x86_64__)
  before_ = _mm_getcsr();
  _mm_setcsr(0x1f80);  // all exceptions masked, to nearest, FTZ and DAZ off
#endif
}

FloatingPoint::~FloatingPoint() {
#if defined(__x86_64__)
  _mm_setcsr(before_);
#endif
}

namespace {

inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

constexpr int SPINS = 2000;  // some ten microseconds, then a thread sleeps

class Pool {
 public:
  // One caller at a time; returns false if another one is inside.
  bool run(int threads, int64_t count, const std::function<void(int64_t)>& piece) {
    std::unique_lock<std::mutex> only(caller_, std::try_to_lock);
    if (!only.owns_lock()) return false;
    while ((int)workers_ < threads - 1) {
      std::thread([this, id = workers_] { work(id); }).detach();
      ++workers_;
    }
    {
      std::lock_guard<std::mutex> hold(mutex_);
      piece_ = &piece;
      count_ = count;
      next_.store(0);
      wanted_ = threads - 1;
      busy_.store(threads - 1);
      turn_.fetch_add(1);
    }
    wake_.notify_all();
    take();
    for (int i = 0; busy_.load() > 0; ++i) {
      if (i < SPINS)
        pause_briefly();
      else
        std::this_thread::yield();
    }
    return true;
  }

 private:
  void take() {
    for (int64_t i; (i = next_.fetch_add(1)) < count_;) (*piece_)(i);
  }

  void work(unsigned id) {
    FloatingPoint ieee;
    uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < SPINS && turn_.load() == seen; ++i) pause_briefly();
      bool mine;
      {
        std::unique_lock<std::mutex> hold(mutex_);
        wake_.wait(hold, [&] { return turn_.load() != seen; });
        seen = turn_.load();
        mine = (int)id < wanted_;
      }
      if (!mine) continue;
      take();
      busy_.fetch_sub(1);
    }
  }

  std::mutex caller_, mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> turn_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0};
  const std::function<void(int64_t)>* piece_ = nullptr;
  int64_t count_ = 0;
  int wanted_ = 0;
  unsigned workers_ = 0;
};

// Never destroyed: threads may wait in it while the process ends. After a fork its threads are gone,
// and the child starts with a new one.
std::atomic<Pool*> current{nullptr};

Pool& pool() {
  static const bool once = [] {
    current = new Pool;
#ifdef FORKS
    pthread_atfork(nullptr, nullptr, [] { current = new Pool; });
#endif
    return true;
  }();
  (void)once;
  return *current;
}

}  // namespace

void parallel(int threads, int64_t count, const std::function<void(int64_t)>& piece) {
  if (threads > count) threads = (int)count;
  if (threads > 1 && pool().run(threads, count, piece)) return;
  for (int64_t i = 0; i < count; ++i) piece(i);
}
