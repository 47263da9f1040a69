#include "host/trace/trace_file.hpp"

#include <cerrno>
#include <system_error>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

TraceFile::TraceFile(const std::string& path) : path_(path), target_(path) {
  std::error_code ignored;
  // The file behind a symbolic link is replaced, not the link.
  if (std::filesystem::exists(path, ignored)) target_ = std::filesystem::canonical(path);
  written_ = target_;
  if (!std::filesystem::exists(target_, ignored) || std::filesystem::is_regular_file(target_)) written_ += ".part";
  out_.open(written_);
  if (!out_) throw SysError("cannot write the trace " + path_, errno);
  isOpen_ = true;
  out_ << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
}

TraceFile::~TraceFile() {
  std::error_code ignored;
  if (isOpen_ && written_ != target_) std::filesystem::remove(written_, ignored);
}

void TraceFile::add(const JsonChunk& events) {
  out_ << (isEmpty_ ? "\n" : ",\n");
  out_.write(events.data(), static_cast<std::streamsize>(events.size()));
  check();
  isEmpty_ = false;
}

void TraceFile::close(const std::vector<std::string>& summaries) {
  out_ << "\n],\n\"otherData\": {\"clock\":\"CLOCK_MONOTONIC\",\"ranks\":[";
  for (std::size_t i = 0; i < summaries.size(); ++i) out_ << (i == 0 ? "" : ",") << summaries[i];
  out_ << "]}}\n";
  out_.close();
  check();
  std::error_code failure;
  if (written_ != target_) std::filesystem::rename(written_, target_, failure);
  if (failure) throw SysError("the trace " + path_ + " could not be renamed from its temporary name", failure.value());
  isOpen_ = false;
}

void TraceFile::check() const {
  if (!out_) throw SysError("cannot write the trace " + path_, errno);
}

}  // namespace mscclpp::detail
