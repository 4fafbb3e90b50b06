// SPDX-License-Identifier: MIT
#include "offline/gguf_output.h"

#include <array>

#include "base/binary_file.h"
#include "base/bytes.h"
#include "base/check.h"

namespace moestro {

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
