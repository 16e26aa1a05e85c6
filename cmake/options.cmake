# Compiler options of our own targets, and the two functions that declare them.

add_library(pd_options INTERFACE)
target_compile_options(pd_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-align>)
if(PD_WARNINGS_AS_ERRORS)
  target_compile_options(pd_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(PD_SANITIZE)
  target_compile_options(pd_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PD_SANITIZE} -fno-omit-frame-pointer -g>)
  target_link_options(pd_options INTERFACE -fsanitize=${PD_SANITIZE})
endif()

# pd_library(FOLDER SOURCES … LINKS …): the static library of lib/FOLDER; its target is pd_FOLDER.
function(pd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  string(REPLACE "/" "_" target "pd_${name}")
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/lib)
  target_link_libraries(${target} PUBLIC ${ARG_LINKS} PRIVATE pd_options ${ARG_PRIVATE_LINKS})
endfunction()

# pd_test(FOLDER SOURCES … LINKS … [LABEL unit]): the tests of one folder as one Catch2 program.
function(pd_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LINKS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  string(REPLACE "/" "_" target "${name}_test")
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_LINKS} pd_test_main pd_options)
  target_compile_options(${target} PRIVATE -O1)  # tests take longer to compile than to run
  target_compile_definitions(${target} PRIVATE PD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${target} COMMAND ${target})
  set_tests_properties(${target} PROPERTIES LABELS ${ARG_LABEL} ENVIRONMENT OMP_NUM_THREADS=1)
endfunction()
