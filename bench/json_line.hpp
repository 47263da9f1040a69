// A measurement as one line of JSON. Only its source includes the JSON library, which takes long to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace mscclpp::bench {

/// An object; its members keep the order in which they are added.
class JsonLine {
 public:
  JsonLine();
  ~JsonLine();
  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;

  JsonLine& add(const char* name, bool value);
  JsonLine& add(const char* name, int value);
  JsonLine& add(const char* name, std::uint64_t value);
  JsonLine& add(const char* name, double value);
  JsonLine& add(const char* name, const std::string& value);
  JsonLine& add(const char* name, const char* value);  // would otherwise be a bool

  /// Without the end of the line.
  std::string text() const;

 private:
  std::unique_ptr<nlohmann::ordered_json> object_;
};

}  // namespace mscclpp::bench
