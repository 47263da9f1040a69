#include "bench/json_line.hpp"

#include <nlohmann/json.hpp>

namespace mscclpp::bench {

JsonLine::JsonLine() : object_(std::make_unique<nlohmann::ordered_json>(nlohmann::ordered_json::object())) {}
JsonLine::~JsonLine() = default;

JsonLine& JsonLine::add(const char* name, bool value) {
  (*object_)[name] = value;
  return *this;
}

JsonLine& JsonLine::add(const char* name, int value) {
  (*object_)[name] = value;
  return *this;
}

JsonLine& JsonLine::add(const char* name, std::uint64_t value) {
  (*object_)[name] = value;
  return *this;
}

JsonLine& JsonLine::add(const char* name, double value) {
  (*object_)[name] = value;
  return *this;
}

JsonLine& JsonLine::add(const char* name, const std::string& value) {
  (*object_)[name] = value;
  return *this;
}

JsonLine& JsonLine::add(const char* name, const char* value) {
  return add(name, std::string(value));
}

std::string JsonLine::text() const {
  return object_->dump();
}

}  // namespace mscclpp::bench
