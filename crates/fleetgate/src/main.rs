//! The front door and the phone book of a fleet of Kubernetes clusters.

mod admin;
mod advice;
mod agent_process;
mod agents;
mod arguments;
mod check;
mod control;
mod credential;
mod demo;
mod drain;
mod egress;
mod explain;
mod external_dns;
mod get;
mod hand_over;
mod home;
mod inward;
mod job;
mod keeper;
mod leading;
mod links;
mod load;
mod node_proxy;
mod overflow;
mod paint;
mod peers;
mod places;
mod reference;
mod release;
mod replicas;
mod resolver;
mod serve;
mod stand_in;
mod sync;
mod table;
mod telemetry;
mod tunnel_agent;
mod waiting;
mod ways;
mod web_doors;
mod wiring;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use arguments::{AgentCommand, Arguments, Command};
use paint::Paint;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let paint = Paint::of(arguments.color, &std::io::stdout());
    let outcome = match arguments.command {
        Command::Serve(options) => serve::run(&(*options).into()),
        Command::Controller(options) => serve::run(&(*options).into()),
        Command::Dns(options) => match &options.command {
            Some(resolver::DnsCommand::Config(options)) => resolver::config(options),
            None => serve::run(&(*options).into()),
        },
        Command::Gateway(options) => serve::run(&(*options).into()),
        Command::Check(options) => check::run(&options, paint),
        Command::Get(options) => get::run(&options, paint),
        Command::Explain(options) => explain::run(&options, paint),
        Command::Credential(command) => credential::run(&command, paint),
        Command::Egress(command) => egress::run(&command),
        Command::Release(options) => release::run(&options),
        Command::Drain(options) => drain::run(&options),
        Command::Crds => {
            print!("{}", manifest::crds::to_yaml());
            Ok(ExitCode::SUCCESS)
        }
        Command::Openapi => {
            print!("{}", api::openapi::to_text());
            Ok(ExitCode::SUCCESS)
        }
        Command::Reference(options) => reference::run(&options),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "fleetgate", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Demo(options) => demo::run(&options),
        Command::Agent(AgentCommand::NodeProxy(options)) => node_proxy::run(&options),
        Command::Agent(AgentCommand::Sync(options)) => sync::run(&options),
        Command::Agent(AgentCommand::ExternalDns(options)) => external_dns::run(&options),
        Command::Agent(AgentCommand::Load(options)) => load::run(&options),
        Command::Agent(AgentCommand::Tunnel(options)) => tunnel_agent::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("fleetgate: {error:#}");
        if let Some(advice) = advice::of(&error) {
            eprintln!("  help: {advice}");
        }
        ExitCode::FAILURE
    })
}
