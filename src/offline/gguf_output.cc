// SPDX-License-Identifier: MIT
#include "offline/gguf_output.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/binary_file.h"
#include "base/number.h"
#include "base/result.h"
#include "base/text.h"

namespace moestro {
namespace {

// Queue of pieces between the threads that make them and the thread that takes them.
class PieceLine {
 public:
  PieceLine(uint64_t n, uint32_t threads, const MakePiece& make)
      : n_(n), make_(make), made_(size_t{2} * threads) {}
  PieceLine(const PieceLine&) = delete;
  PieceLine& operator=(const PieceLine&) = delete;
  ~PieceLine();

  Status Start(uint32_t threads);
  // Waits for the next piece and returns it. REQUIRES: not all have been taken.
  Result<std::vector<std::byte>> Take();

 private:
  using Bytes = std::vector<std::byte>;
  using Made = std::optional<Result<Bytes>>;
  void Work();

  const uint64_t n_;
  const MakePiece& make_;

  // Never held while a piece is made or taken.
  std::mutex mutex_;
  std::condition_variable has_room_;
  std::condition_variable has_piece_;
  std::vector<Made> made_;    // piece i at i % size; guarded by mutex_
  uint64_t next_ = 0;         // to be made; guarded by mutex_
  uint64_t taken_ = 0;        // guarded by mutex_
  bool is_stopping_ = false;  // guarded by mutex_

  std::vector<std::thread> threads_;  // joined by the destructor
};

Status PieceLine::Start(uint32_t threads) {
  const auto useful = static_cast<uint32_t>(std::min<uint64_t>(threads, n_));
  try {
    for (uint32_t i = 0; i < useful; ++i) {
      threads_.emplace_back([this] { Work(); });
      pthread_setname_np(threads_.back().native_handle(), Format("moestro-qt-{}", i).c_str());
    }
  } catch (const std::system_error& e) {
    return Fail(Errc::kNoMemory, "cannot start {} threads: {}", useful, e.what());
  }
  return {};
}

PieceLine::~PieceLine() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PieceLine::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_room_.wait(lock,
                   [this] { return is_stopping_ || next_ == n_ || next_ < taken_ + made_.size(); });
    if (is_stopping_ || next_ == n_) return;
    const uint64_t piece = next_++;
    lock.unlock();
    auto made = Caught([&] { return make_(piece); },
                       [](std::string_view why) -> Result<Bytes> {
                         return Fail(Errc::kNoMemory, "a thread failed: {}", why);
                       });
    lock.lock();
    made_[piece % made_.size()] = std::move(made);
    has_piece_.notify_one();
  }
}

Result<std::vector<std::byte>> PieceLine::Take() {
  std::unique_lock lock(mutex_);
  CHECK(taken_ < n_);
  Made& made = made_[taken_ % made_.size()];
  has_piece_.wait(lock, [&made] { return made.has_value(); });
  auto piece = *std::exchange(made, std::nullopt);
  ++taken_;
  has_room_.notify_all();
  return piece;
}

}  // namespace

Status RunInOrder(uint64_t n, uint32_t threads, const MakePiece& make, const TakePiece& take) {
  CHECK(threads > 0);
  PieceLine line(n, threads, make);
  TRY_STATUS(line.Start(threads));
  for (uint64_t i = 0; i < n; ++i) {
    TRY(const auto piece, line.Take());
    TRY_STATUS(take(piece));
  }
  return {};
}

// gguf_set_val_u32() sets the key, but only reading a file sets the alignment that offsets are made
// with. So NewGguf() reads a file with that key.
gguf_context_ptr NewGguf(uint32_t alignment) {
  if (alignment == GGUF_DEFAULT_ALIGNMENT) return gguf_context_ptr{gguf_init_empty()};
  constexpr std::string_view kKey = GGUF_KEY_GENERAL_ALIGNMENT;
  std::string header(GGUF_MAGIC);
  AppendNumber(header, uint32_t{GGUF_VERSION});
  AppendNumber(header, uint64_t{0});  // tensors
  AppendNumber(header, uint64_t{1});  // keys
  AppendNumber(header, uint64_t{kKey.size()});
  header += kKey;
  AppendNumber(header, static_cast<uint32_t>(GGUF_TYPE_UINT32));
  AppendNumber(header, alignment);
  gguf_context_ptr gguf{
      gguf_init_from_buffer(header.data(), header.size(), {.no_alloc = true, .ctx = nullptr})};
  CHECK(gguf && gguf_get_alignment(gguf.get()) == alignment);
  return gguf;
}

Result<gguf_context_ptr> ReadKeys(const std::string& path,
                                  const std::function<bool(std::string_view key)>& keep) {
  gguf_context_ptr file{gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr})};
  if (!file) return Fail(Errc::kInvalidFile, "cannot read {} as a GGUF file", path);
  std::vector<std::string> others;
  for (int64_t i = 0; i < gguf_get_n_kv(file.get()); ++i) {
    const std::string key = gguf_get_key(file.get(), i);
    if (!keep(key)) others.push_back(key);
  }
  for (const std::string& key : others) gguf_remove_key(file.get(), key.c_str());
  return file;
}

void AddTensor(gguf_context* gguf, const std::string& name, ggml_type type,
               std::span<const int64_t> ne) {
  const ggml_init_params params = {
      .mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true};
  const ggml_context_ptr context{ggml_init(params)};
  CHECK(context);
  ggml_tensor* tensor =
      ggml_new_tensor(context.get(), type, static_cast<int>(ne.size()), ne.data());
  ggml_set_name(tensor, name.c_str());
  gguf_add_tensor(gguf, tensor);  // copies the tensor's description
}

std::vector<std::byte> HeaderBytes(const gguf_context* gguf) {
  std::vector<std::byte> header(gguf_get_meta_size(gguf));
  gguf_get_meta_data(gguf, header.data());
  return header;
}

Status PadTo(OutputFile& file, uint64_t alignment) {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  CHECK(alignment <= kZeros.size());
  return file.Write(std::span(kZeros).first(AlignUp(file.size(), alignment) - file.size()));
}

Status CheckMayWrite(const OutputPath& path, bool overwrite) {
  TRY_STATUS(CheckMayCreate(path));
  if (overwrite) return {};
  TRY(const Destination to, FollowLinks(path.text()));
  if (to.kind != Destination::Kind::kFile) return {};
  return Fail(Errc::kIo, "{} exists already; remove it or use --force", path.text());
}

Status CheckRoom(const OutputPath& path, uint64_t bytes) {
  TRY(const uint64_t available, FreeBytesFor(path));
  if (available >= bytes) return {};
  return Fail(Errc::kIo, "{} would need {}, but its disk has only {} free", path.text(),
              FormatBytes(bytes), FormatBytes(available));
}

}  // namespace moestro
